-- Answers by content: an equal call in any row, column or collection of a namespace takes the answer that is there.

-- One tuple a fingerprint (definition and shown inputs, as `plan` has it). Errors are never kept.
create table autofill.cache (
    namespace_id  int not null,
    fingerprint   bytea not null,
    value         jsonb,                           -- null is an answer
    signal        bigint not null,                 -- the latest that had been given out when its call began: a forced
                                                   --   demand takes no answer that is older than itself
    model         text,
    tokens_in     bigint not null,                 -- of the call that brought it: what each further use saves
    tokens_out    bigint not null,
    computed_at   timestamptz not null default clock_timestamp(),
    primary key (namespace_id, fingerprint)
-- Small tables are read whole, and prepared statements would go on so when they have grown: what is known of their size
-- is left unknown until they have some.
) with (autovacuum_analyze_threshold = 1000, autovacuum_vacuum_insert_threshold = 10000);
create index cache_age on autofill.cache (computed_at);

-- Who computes what is not there. It lasts until the answer is stored, its visit has ended, or its lease is over.
create table autofill.cache_owner (
    namespace_id   int not null,
    fingerprint    bytea not null,
    worker_id      uuid not null,                  -- with the four below: the call, as its visit's token and its cell
    claim          bigint not null,
    collection_id  int not null,
    row_id         bigint not null,
    column_id      smallint not null,
    signal         bigint not null,                -- the latest that had been given out when it took the key
    forced         bigint not null,                -- the forced demand behind it, 0 for none
    taken_at       timestamptz not null,
    lease          interval not null,
    primary key (namespace_id, fingerprint)
-- Its file keeps its size, or it would be taken for empty whenever it was for a moment.
) with (fillfactor = 50, vacuum_truncate = off, autovacuum_vacuum_threshold = 5000, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_scale_factor = 0);

-- A delayed row that waits for somebody's call: what ends it makes the row due. `waits` is how often it has waited on end.
alter table autofill.work add column awaits bytea, add column waits smallint not null default 0;
create index work_awaits on autofill.work (awaits) where state = 'delayed' and awaits is not null;

-- Of outcome `cached`: what the calls that were not made would have taken.
alter table autofill.completion add column saved_tokens_in bigint not null default 0,
    add column saved_tokens_out bigint not null default 0;
