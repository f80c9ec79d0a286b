-- What a round came to: of the providers only what it changed, and the worker's own leases.
with item as materialized (
    select * from unnest(
        %(providers)s::int[], %(changed)s::bool[], %(proven)s::bool[], %(cool)s::float8[],
        %(ceilings)s::float8[], %(knees)s::float8[], %(generations)s::int[], %(accepted)s::int[], %(rejected)s::int[],
        %(rejected_before)s::float8[], %(background)s::float8[], %(rounds)s::bool[], %(found_requests)s::int[], %(found_tokens)s::bigint[],
        %(demands)s::int[], %(in_flight)s::int[], %(requests_wanted)s::int[], %(tokens_wanted)s::bigint[],
        %(concurrency)s::int[], %(requests_minute)s::int[], %(tokens_minute)s::bigint[]
    ) as i (provider_id, changed, proven, cool, ceiling, knee, generation, accepted, rejected, rejected_before, background, is_round,
            found_requests, found_tokens, demand, in_flight, requests_wanted, tokens_wanted, concurrency,
            requests_minute, tokens_minute)
),
learnt as (
    update autofill.provider set
        proven_at = case when item.proven then coalesce(provider.proven_at, clock_timestamp()) end,
        cool_until = greatest(provider.cool_until, clock_timestamp() + item.cool * interval '1 second'),
        ceiling = item.ceiling, knee = item.knee, generation = item.generation, accepted = item.accepted,
        rejected = item.rejected, rejected_before = item.rejected_before, background = item.background,
        lowered_at = case when item.generation > provider.generation then clock_timestamp() else provider.lowered_at end,
        round_at = case when item.is_round then clock_timestamp() else provider.round_at end,
        found_requests = coalesce(item.found_requests, provider.found_requests),
        found_tokens = coalesce(item.found_tokens, provider.found_tokens),
        found_at = case when item.found_requests is null and item.found_tokens is null then provider.found_at
                        else clock_timestamp() end
    from item where provider.id = item.provider_id and item.changed
)
insert into autofill.provider_lease
    (provider_id, worker_id, demand, in_flight, requests_wanted, tokens_wanted, concurrency, requests_minute,
     tokens_minute, expires_at)
select provider_id, worker.id, demand, in_flight, requests_wanted, tokens_wanted, concurrency, requests_minute,
    tokens_minute, clock_timestamp() + worker.lease
from item join autofill.worker on worker.id = %(worker_id)s and worker.ended_at is null
order by provider_id
on conflict (provider_id, worker_id) do update set
    demand = excluded.demand, in_flight = excluded.in_flight, requests_wanted = excluded.requests_wanted,
    tokens_wanted = excluded.tokens_wanted, concurrency = excluded.concurrency,
    requests_minute = excluded.requests_minute, tokens_minute = excluded.tokens_minute,
    expires_at = excluded.expires_at
returning provider_id;
