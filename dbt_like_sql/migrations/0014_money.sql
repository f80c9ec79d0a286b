-- What calls cost, and what they may cost. Money is whole billionths of a dollar: sums are exact.

alter table autofill.attempt
    add column tokens_cached bigint not null default 0,     -- of tokens_in: found in the provider's prompt cache
    add column tokens_reasoning bigint not null default 0,  -- of tokens_out: thought, and not shown
    add column cost bigint;                                 -- null: not known
-- Of the call that gave the cell's answer or error; null where no model was called.
alter table autofill.cell add column tokens_in int, add column tokens_out int, add column cost bigint;

alter table autofill.dispatch
    add column max_cost bigint check (max_cost >= 0),       -- reached: paused, with the reason
    add column spent bigint not null default 0,             -- rolled up; what is in usage_delta comes on top
    add column pause_reason text;                           -- null: a person paused it

-- What a flush's calls of a model took, inserted in its own transaction and rolled up by the janitor: a row that all
-- flushes updated would make each wait for the other's commit.
create table autofill.usage_delta (
    namespace_id      int not null,
    collection_id     int not null,
    column_id         smallint not null,
    model             text not null,
    day               date not null default (clock_timestamp() at time zone 'UTC')::date,
    dispatch_id       bigint not null,
    calls             bigint not null,
    failed            bigint not null,
    tokens_in         bigint not null,
    tokens_cached     bigint not null,
    tokens_out        bigint not null,
    tokens_reasoning  bigint not null,
    cost              bigint not null,              -- of those whose cost is known
    unpriced          bigint not null               -- calls whose cost is not
) with (autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0);
create index usage_delta_namespace on autofill.usage_delta (namespace_id);
create index usage_delta_dispatch on autofill.usage_delta (dispatch_id);

-- The same, rolled up, for ever. What people read is the sum of both in one snapshot.
create table autofill.usage (
    namespace_id      int not null references autofill.namespace,
    day               date not null,
    collection_id     int not null references autofill.collection,
    column_id         smallint not null,
    model             text not null,
    calls             bigint not null,
    failed            bigint not null,
    tokens_in         bigint not null,
    tokens_cached     bigint not null,
    tokens_out        bigint not null,
    tokens_reasoning  bigint not null,
    cost              bigint not null,
    unpriced          bigint not null,
    primary key (namespace_id, day, collection_id, column_id, model)
) with (fillfactor = 70);

-- What each column has cost in all: what budgets are compared with at every flush, however many days there are.
create table autofill.usage_total (
    namespace_id   int not null references autofill.namespace,
    collection_id  int not null references autofill.collection,
    column_id      smallint not null,
    cost           bigint not null,
    primary key (namespace_id, collection_id, column_id)
) with (fillfactor = 70);

-- What may be spent: a namespace's credit, or a cap on a namespace, a collection or a column, for ever or for each day
-- (UTC). Credit counts from when it was first given, `base` being what had been spent by then.
create table autofill.budget (
    id             bigint generated always as identity primary key,
    namespace_id   int not null references autofill.namespace,
    collection_id  int references autofill.collection,  -- null: all of the namespace
    column_id      smallint,                            -- null: all of the collection
    period         text not null check (period in ('credit', 'ever', 'day')),
    amount         bigint not null check (amount >= 0),
    base           bigint not null default 0,
    actor          text not null,
    set_at         timestamptz not null default clock_timestamp(),
    unique nulls not distinct (namespace_id, collection_id, column_id, period),
    check (column_id is null or collection_id is not null),
    check (period <> 'credit' or collection_id is null)
);

-- Credit as it was given: who, when, how much.
create table autofill.credit (
    id            bigint generated always as identity primary key,
    namespace_id  int not null references autofill.namespace,
    amount        bigint not null,
    actor         text not null,
    added_at      timestamptz not null default clock_timestamp()
);
create index credit_namespace on autofill.credit (namespace_id, id);

create index dispatch_capped on autofill.dispatch (collection_id) where ended_at is null and max_cost is not null;
