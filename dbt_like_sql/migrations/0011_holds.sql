-- Lanes, columns and namespaces are held: their calls are not made, and wait, until the reason is gone. Nothing fails.

create table autofill.hold (
    id             bigint generated always as identity primary key,
    namespace_id   int not null references autofill.namespace,
    collection_id  int references autofill.collection,  -- null: every collection of the namespace
    job_type       text not null,
    column_id      smallint,                            -- null: every column of the job type
    reason         text not null,                       -- quota, auth, model_missing, budget
    message        text not null,                       -- the provider's words, or which budget it is
    placed_at      timestamptz not null default clock_timestamp(),
    expires_at     timestamptz,                         -- it is over then by itself
    probe_at       timestamptz,                         -- one call may try then; null: only a person ends it
    probes         int not null default 0,              -- that have failed
    probing_by     uuid,                                -- the worker that may make that call
    probing_until  timestamptz,
    lifted_at      timestamptz,
    lifted_by      text,
    check (column_id is null or collection_id is not null)
);
-- One at a time: a million calls that meet the same make one hold, and one alert.
create unique index hold_active on autofill.hold (namespace_id, collection_id, job_type, column_id)
    nulls not distinct where lifted_at is null;
