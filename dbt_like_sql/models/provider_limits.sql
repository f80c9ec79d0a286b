-- Endpoints: their limits as set, as found out and as in force, what is leased of them, and what goes on.
select
    provider.base_url,
    provider.model,
    provider.concurrency,
    provider.requests_minute,
    provider.tokens_minute,
    floor(provider.ceiling)::int as ceiling,
    case when provider.found_at > clock_timestamp() - interval '1 minute' then provider.found_requests end
        as found_requests,
    case when provider.found_at > clock_timestamp() - interval '1 minute' then provider.found_tokens end as found_tokens,
    coalesce(leased.workers, 0) as workers,
    leased.concurrency as granted,
    leased.requests_minute as granted_requests,
    leased.tokens_minute as granted_tokens,
    coalesce(leased.in_flight, 0) as in_flight,
    coalesce(leased.demand - leased.in_flight, 0) as waiting,
    provider.proven_at,
    greatest(0, extract(epoch from provider.cool_until - clock_timestamp()))::float8 as cooling,
    provider.lowered_at,
    case
        when provider.cool_until > clock_timestamp() then 'cooling'
        when provider.proven_at is null then 'unproven'
        when leased.demand > leased.in_flight then 'limited'
        else 'open'
    end as state
from {{ source('autofill', 'provider') }}
left join (
    select
        lease.provider_id,
        count(*) as workers,
        sum(lease.concurrency) as concurrency,
        sum(lease.requests_minute) as requests_minute,
        sum(lease.tokens_minute) as tokens_minute,
        sum(lease.in_flight) as in_flight,
        sum(lease.demand) as demand
    from {{ source('autofill', 'provider_lease') }} as lease
    join {{ source('autofill', 'worker') }} on worker.id = lease.worker_id
    where lease.expires_at > clock_timestamp() and worker.ended_at is null
    group by lease.provider_id
) as leased on leased.provider_id = provider.id
