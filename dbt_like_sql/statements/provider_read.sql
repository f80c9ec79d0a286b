-- Locked providers as they are now, each with the leases of its other live workers.
with clock as materialized (select clock_timestamp() as now)
select provider.id, base_url, model, provider.concurrency, provider.requests_minute, provider.tokens_minute,
    proven_at is not null as proven, ceiling, knee, generation, accepted, rejected, rejected_before, background,
    greatest(0, extract(epoch from cool_until - now))::float8 as cool,
    extract(epoch from now - round_at)::float8 as round_age,
    -- headers tell of the minute they were sent in
    case when found_at > now - interval '1 minute' then found_requests end as found_requests,
    case when found_at > now - interval '1 minute' then found_tokens end as found_tokens,
    extract(epoch from now)::float8 as clock,
    coalesce(others.leases, '[]') as leases
from autofill.provider cross join clock
left join lateral (
    select jsonb_agg(jsonb_build_array(worker_id, demand, in_flight, requests_wanted, tokens_wanted,
                                       lease.concurrency, lease.requests_minute, lease.tokens_minute)) as leases
    from autofill.provider_lease as lease join autofill.worker on worker.id = worker_id
    where lease.provider_id = provider.id and worker_id <> %(worker_id)s and expires_at > now and ended_at is null
) as others on true
where provider.id = any(%(providers)s)
order by provider.id;
