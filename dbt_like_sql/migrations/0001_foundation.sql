-- The foundation: collections and their versions, rows, cells, the queue, dispatches, and what they leave behind.
-- Lock order everywhere: collection, row, work, cell; within each by key, taken by an explicit ordered FOR UPDATE.

create schema autofill;

-- One tuple: code that ships an older schema than this may not run here. Contracting migrations raise it.
create table autofill.schema_range (oldest_code int not null);
insert into autofill.schema_range values (1);

-- Signals order everything that wants recomputation. Sequence order is not commit order: a signal is taken under the
-- lock of its row (an edit) or of its collection (a sweep), and compared only under the same lock.
create sequence autofill.signal;

create table autofill.namespace (
    id          int generated always as identity primary key,
    name        text not null unique
);

create table autofill.collection (
    id            int generated always as identity primary key,
    namespace_id  int not null references autofill.namespace,
    name          text not null,
    version       int not null default 0,          -- the current one; 0 until the first apply commits
    cap           int not null default 200 check (cap > 0),  -- slots in flight at most (R4)
    next_row      bigint not null default 1,       -- row ids are given out in ranges, one range a batch
    next_batch    int not null default 1,
    created_at    timestamptz not null default clock_timestamp(),
    unique (namespace_id, name)
);

-- A column keeps its id for ever; its key is the `id` of the YAML, which survives a rename.
create table autofill.collection_column (
    collection_id  int not null references autofill.collection,
    id             smallint not null,
    key            text not null,
    deleted_at     timestamptz,                    -- soft: late answers are dropped and counted, undo works
    primary key (collection_id, id),
    unique (collection_id, key)
);

-- An immutable compile of the schema. Rows are never updated.
create table autofill.version (
    collection_id  int not null references autofill.collection,
    number         int not null,
    hash           bytea not null,
    actor          text not null,
    created_at     timestamptz not null default clock_timestamp(),
    primary key (collection_id, number)
);

-- One column of one version. `definition` is the whole column as compiled; the columns beside it are what SQL joins on.
create table autofill.definition (
    collection_id  int not null,
    version        int not null,
    column_id      smallint not null,
    position       smallint not null,
    name           text not null,
    kind           text,                           -- null: an input
    mode           text not null check (mode in ('on_change', 'cron', 'never')),
    hash           bytea not null,                 -- 16 bytes: what a fingerprint covers of the definition
    depends_on     smallint[] not null,
    definition     jsonb not null,
    primary key (collection_id, version, column_id),
    foreign key (collection_id, version) references autofill.version
);

-- A group of rows that arrived together: a contiguous range of row ids, a partition of the Dagster asset.
create table autofill.batch (
    collection_id  int not null references autofill.collection,
    id             int not null,
    key            text not null,                  -- opaque; from the content, so the same file twice is the same batch
    source         text not null,
    first_row      bigint not null,
    last_row       bigint not null,                -- first_row - 1 when it has none
    rejected       jsonb not null default '[]',    -- [[line, reason], …], bounded; the rest are counted
    rejected_rows  bigint not null default 0,
    actor          text not null,
    loaded_at      timestamptz not null default clock_timestamp(),
    primary key (collection_id, id),
    unique (collection_id, key)
);

-- The loaded inputs of a row, in one tuple; also the lock of everything that belongs to the row.
create table autofill.row (
    collection_id  int not null,
    row_id         bigint not null,
    batch_id       int not null,
    change         bigint not null default 0,      -- signal of the last change a person or a load made to it
    inputs         jsonb not null,                 -- column id -> value; an absent key is a missing value
    deleted_at     timestamptz,
    primary key (collection_id, row_id)
) with (fillfactor = 90);

-- What people read. A tuple exists only for a cell that was edited or computed.
create table autofill.cell (
    collection_id  int not null,
    row_id         bigint not null,
    column_id      smallint not null,
    user_set       boolean not null default false, -- a person's value is shown, even when that value is null
    user_value     jsonb,
    user_actor     text,
    user_at        timestamptz,
    ai_value       jsonb,
    fingerprint    bytea,                          -- of what the last call read: definition and shown inputs
    called         bigint not null default 0,      -- signal of the last real call
    demanded       bigint not null default 0,      -- signal of a forced demand that found its inputs missing
    change         bigint not null default 0,      -- signal of the last change of the shown value
    read_change    bigint not null default 0,      -- highest change number among the inputs the last call read
    version        int,
    model          text,
    computed_at    timestamptz,
    error_class    text,                           -- null: ai_value is the answer; 'blocked' has ended as well
    error          text,
    primary key (collection_id, row_id, column_id),
    check (user_set or user_value is null),
    check ((error_class is null) = (error is null))
) with (fillfactor = 85);
create index cell_error on autofill.cell (collection_id, error_class, row_id) where error_class is not null;

create table autofill.worker (
    id          uuid primary key,                  -- fresh at every start
    host        text not null,
    pid         int not null,
    job_types   text[] not null,
    lease       interval not null,
    started_at  timestamptz not null default clock_timestamp(),
    beat_at     timestamptz not null default clock_timestamp(),
    ended_at    timestamptz                        -- it said goodbye, or was reclaimed: it may claim no more
);
create index worker_live on autofill.worker (beat_at) where ended_at is null;

-- Slots that a worker holds of a collection's cap, taken under the claim lock before rows are, given back some time after
-- the release. Held slots are never fewer than the calls in flight (R4): counting `work` and then taking would race.
-- Only the worker's own claimer writes them (and the janitor, of a worker that has ended), so the claim lock never waits.
create table autofill.slot (
    worker_id      uuid not null references autofill.worker,
    collection_id  int not null,
    held           int not null check (held >= 0),
    primary key (worker_id, collection_id)
) with (fillfactor = 30, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
create index slot_collection on autofill.slot (collection_id);

create table autofill.dispatch (
    id             bigint generated always as identity primary key,
    collection_id  int not null references autofill.collection,
    signal         bigint not null,
    reason         text not null,                  -- edit, load, reprocess, apply, …
    actor          text not null,
    columns        smallint[] not null,            -- asked for by name; empty: what the change itself makes due
    force          boolean not null,
    key            text unique,                    -- of the asker (a Dagster root run id): asked twice, found again
    total          bigint not null,                -- cells in scope
    version        int not null,
    created_at     timestamptz not null default clock_timestamp(),
    ended_at       timestamptz                     -- set once (R7)
);
create index dispatch_open on autofill.dispatch (id) where ended_at is null;
create index dispatch_recent on autofill.dispatch (collection_id, id);

-- What a dispatch asks for by name, as the demand of a row.
create function autofill.dispatch_demand(dispatch autofill.dispatch) returns jsonb
language sql stable as $$
    select coalesce(jsonb_object_agg(named, jsonb_build_array(
        dispatch.signal, case when dispatch.force then dispatch.signal else 0 end, dispatch.id)), '{}')
    from unnest(dispatch.columns) as named
$$;

-- A dispatch over a contiguous range of rows, kept as a cursor; a dispatch over several ranges has several.
create table autofill.sweep (
    id             bigint generated always as identity primary key,
    dispatch_id    bigint not null references autofill.dispatch,
    collection_id  int not null,
    job_type       text not null,                  -- of the first column it makes due: where its rows start
    cursor         bigint not null,                -- the last row id passed
    last_row       bigint not null,
    closed_at      timestamptz
) with (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
create index sweep_open on autofill.sweep (collection_id, job_type, id) where closed_at is null;
create index sweep_dispatch on autofill.sweep (dispatch_id);

-- Rows that a sweep had to pass because somebody held them; they go first next time, and keep the sweep open.
create table autofill.sweep_hole (
    sweep_id  bigint not null references autofill.sweep,
    row_id    bigint not null,
    primary key (sweep_id, row_id)
);

-- A row's explicit demand: column id -> [signal, forced, dispatch]. It belongs to the latest dispatch that named the
-- column; `forced` is the signal of the latest demand by force, which a later one without force does not undo (R6, R7).
create function autofill.demand_merge(met jsonb, new jsonb) returns jsonb
language sql immutable parallel safe as $$
    select case when met = '{}' then new when new = '{}' then met else (
        select jsonb_object_agg(key, jsonb_build_array(signal, forced, dispatch_id)) from (
            select distinct on (key) key, value -> 0 as signal, value -> 2 as dispatch_id,
                max((value ->> 1)::bigint) over (partition by key) as forced
            from (select * from jsonb_each(met) union all select * from jsonb_each(new)) as entry
            order by key, (value ->> 0)::bigint desc
        ) as latest
    ) end
$$;

-- The dispatches that own a row's explicit demand beside the one in `dispatch_id`; null when there are none.
create function autofill.demand_owners(demand jsonb, dispatch_id bigint) returns bigint[]
language sql immutable parallel safe as $$
    select array_agg(distinct (value ->> 2)::bigint) from jsonb_each(demand)
    where (value ->> 2)::bigint <> dispatch_id
$$;

create type autofill.work_state as enum ('queued', 'delayed', 'parked', 'computing');
create type autofill.priority as enum ('edit', 'retry', 'sweep');

-- What workers read: the rows wanted or being worked on now, one tuple a row. The tuple is the demand (R6).
create table autofill.work (
    collection_id  int not null,
    row_id         bigint not null,
    state          autofill.work_state not null,
    job_type       text not null,
    priority       autofill.priority not null,
    queued_at      timestamptz not null,
    available_at   timestamptz,                    -- when state is delayed
    deferred       boolean not null default false, -- delayed by too many rounds: an edit does not wake it sooner
    worker_id      uuid,                           -- with claim, the token: a start UUID and its counter, never a
    claim          bigint,                         --   sequence, which repeats itself after a crash (R2)
    slots          smallint not null default 1,    -- calls it may have side by side, of those its worker holds
    dirty          boolean not null default false, -- demand came while computing: a hint for the poll
    computing      smallint[],                     -- columns whose calls are taking long enough to show
    signal         bigint not null,                -- of the latest demand
    raised         int not null default 0,         -- how often demand has met this tuple: what a release compares
    dispatch_id    bigint not null,                -- of the latest demand; cascaded cells count there
    demand         jsonb not null default '{}',    -- asked for by name: column id -> [signal, forced, dispatch]
    owners         bigint[] generated always as (autofill.demand_owners(demand, dispatch_id)) stored,
    attempts       jsonb not null default '{}',    -- column id -> failed attempts that will be tried again
    primary key (collection_id, row_id),
    check ((state = 'computing') = (worker_id is not null and claim is not null)),
    check ((state = 'delayed') = (available_at is not null))
) with (fillfactor = 60, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.02);
create index work_queued on autofill.work (collection_id, job_type, priority, queued_at) where state = 'queued';
create index work_delayed on autofill.work (available_at) where state = 'delayed';
create index work_worker on autofill.work (worker_id) where state = 'computing';
create index work_dirty on autofill.work (worker_id) where dirty;
create index work_dispatch on autofill.work (dispatch_id);
create index work_owners on autofill.work using gin (owners) where owners is not null;

-- What happened, one tuple per finalize × dispatch × batch × column × outcome. Read in (xid, id) order below the
-- oldest running transaction: by id alone, rows that commit late are lost.
create table autofill.completion (
    xid            xid8 not null default pg_current_xact_id(),
    id             bigint generated always as identity,
    dispatch_id    bigint not null,
    collection_id  int not null,
    batch_id       int not null,
    column_id      smallint not null,
    outcome        text not null,                  -- ready, unchanged, fresh, blocked, superseded, deleted, or an error class
    row_ids        bigint[] not null,
    completed_at   timestamptz not null default clock_timestamp()
) partition by range (completed_at);
create index completion_order on autofill.completion (xid, id);
create index completion_dispatch on autofill.completion (dispatch_id);

-- Calls made, folded like completions; failures keep one tuple each, with their text.
create table autofill.attempt (
    id             bigint generated always as identity,
    dispatch_id    bigint not null,
    collection_id  int not null,
    batch_id       int not null,
    column_id      smallint not null,
    row_ids        bigint[] not null,
    outcome        text not null check (outcome in ('succeeded', 'failed', 'interrupted', 'superseded')),
    error_class    text,
    error          text,
    worker_id      uuid not null,
    model          text,
    tokens_in      bigint not null default 0,
    tokens_out     bigint not null default 0,
    ended_at       timestamptz not null default clock_timestamp()
) partition by range (ended_at);
create index attempt_dispatch on autofill.attempt (dispatch_id);

-- What only grows is kept by the week, and dropped by it: deleting row by row would cost as much as writing.
create table autofill.completion_default partition of autofill.completion default;
create table autofill.attempt_default partition of autofill.attempt default;

-- Partitions for this week and the next. Rows that came before theirs was made stay in the default one.
create function autofill.partitions_ensure(parents text[]) returns void language plpgsql as $$
declare
    parent text;
    week timestamptz;
begin
    foreach parent in array parents loop
        for week in select date_trunc('week', clock_timestamp()) + n * interval '1 week' from generate_series(0, 1) as n loop
            if to_regclass(format('autofill.%s_%s', parent, to_char(week, 'IYYY"w"IW'))) is null then
                begin
                    execute format('create table autofill.%I partition of autofill.%I for values from (%L) to (%L)',
                        parent || to_char(week, '_IYYY"w"IW'), parent, week, week + interval '1 week');
                exception when check_violation or duplicate_table then null;
                end;
            end if;
        end loop;
    end loop;
end $$;
select autofill.partitions_ensure(array['completion', 'attempt']);

-- Drop the partitions that end before a time; returns their names.
create function autofill.partitions_drop(parents text[], before timestamptz) returns setof text language plpgsql as $$
declare
    old text;
begin
    for old in
        select child.relname from pg_inherits
        join pg_class as parent on parent.oid = inhparent
        join pg_class as child on child.oid = inhrelid
        where parent.relnamespace = 'autofill'::regnamespace and parent.relname = any(parents)
          and child.relname ~ '_[0-9]{4}w[0-9]{2}$'
          and to_date(right(child.relname, 7), 'IYYY"w"IW') + 7 <= before
    loop
        execute format('drop table autofill.%I', old);
        return next old;
    end loop;
end $$;
