-- What an endpoint (base URL and model) takes, leased to workers about once a second.

create table autofill.provider (
    id               int generated always as identity primary key,
    base_url         text not null,                -- as the client uses it, without user and password
    model            text not null,
    -- as people set them; null: none
    concurrency      int check (concurrency > 0),
    requests_minute  int check (requests_minute > 0),
    tokens_minute    bigint check (tokens_minute > 0),
    proven_at        timestamptz,                  -- first success; until then one call at a time goes out in all
    cool_until       timestamptz,                  -- Retry-After of a 429: nobody calls before
    -- what the endpoint has shown (shares.Learnt)
    ceiling          float8,                       -- calls in flight; null: no 429 yet
    knee             float8 not null default 0,    -- what was in flight when it was lowered
    generation       int not null default 0,       -- how often it was lowered: a 429 of a call from before says nothing
    accepted         int not null default 0,       -- calls not judged yet
    rejected         int not null default 0,
    rejected_before  float8,                       -- share of calls rejected when it was lowered
    background       float8 not null default 0,    -- share rejected whatever the load
    lowered_at       timestamptz,
    round_at         timestamptz not null default clock_timestamp(),
    -- by its x-ratelimit headers, as long as they are fresh
    found_requests   int,
    found_tokens     bigint,
    found_at         timestamptz,
    unique (base_url, model)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

-- A worker's part of it. Written by its worker alone, under the provider's lock; what others must count as taken: the
-- grant, or what the worker had last said it goes by, whichever is more.
create table autofill.provider_lease (
    provider_id       int not null references autofill.provider,
    worker_id         uuid not null references autofill.worker,
    demand            int not null,                -- calls in flight and waiting
    in_flight         int not null,
    requests_wanted   int not null,                -- a minute, as the next two
    tokens_wanted     bigint not null,
    concurrency       int,                         -- null: no limit
    requests_minute   int,
    tokens_minute     bigint,
    expires_at        timestamptz not null,
    primary key (provider_id, worker_id)
) with (fillfactor = 30, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
create index provider_lease_worker on autofill.provider_lease (worker_id);
