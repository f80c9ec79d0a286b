-- What each worker has in flight: every worker that has not ended, and those that ended and left something behind.
select
    worker.id as worker_id,
    worker.host,
    worker.pid,
    worker.job_types,
    worker.ended_at is null and worker.beat_at + worker.lease > clock_timestamp() as live,
    extract(epoch from clock_timestamp() - worker.beat_at)::float8 as beat_age,
    extract(epoch from worker.lease)::float8 as lease,
    coalesce(visiting.visits, 0) as visits,
    coalesce(holding.slots, 0) as slots,
    extract(epoch from clock_timestamp() - visiting.oldest)::float8 as oldest_age,
    worker.started_at,
    worker.ended_at
from {{ source('autofill', 'worker') }}
left join (
    select worker_id, count(*) as visits, min(queued_at) as oldest from {{ source('autofill', 'work') }}
    where state = 'computing'
    group by worker_id
) as visiting on visiting.worker_id = worker.id
left join (
    select worker_id, sum(held) as slots from {{ source('autofill', 'slot') }}
    group by worker_id
) as holding on holding.worker_id = worker.id
where worker.ended_at is null or visiting.visits > 0 or holding.slots > 0
