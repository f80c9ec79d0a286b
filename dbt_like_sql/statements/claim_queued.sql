-- Take queued rows of each granted lane: of its edits and retries, edits first, and of what sweeps have handed over; what
-- waited longest first. The candidates are fixed first (a join under LIMIT may update more rows than it says).
with lane as (
    select * from unnest(%(collections)s::int[], %(job_types)s::text[], %(urgent)s::int[], %(handed)s::int[])
        as l (collection_id, job_type, urgent, handed)
),
due as materialized (
    select candidate.* from lane cross join lateral (
        select * from (
            select collection_id, row_id from autofill.work
            where state = 'queued' and work.collection_id = lane.collection_id and work.job_type = lane.job_type
              and priority < 'sweep'
            order by priority, queued_at
            limit lane.urgent
            for update skip locked
        ) as ahead
        union all
        select * from (
            select collection_id, row_id from autofill.work
            where state = 'queued' and work.collection_id = lane.collection_id and work.job_type = lane.job_type
              and priority = 'sweep'
            order by queued_at
            limit lane.handed
            for update skip locked
        ) as behind
    ) as candidate
)
update autofill.work
set state = 'computing', worker_id = %(worker_id)s, claim = %(claim)s, dirty = false, deferred = false
-- by way of arrays, so that the planner expects few and probes by key: joined to `due`, it may read all of the queue
from unnest(array(select collection_id from due), array(select row_id from due)) as taken (collection_id, row_id)
where work.collection_id = taken.collection_id and work.row_id = taken.row_id
returning work.collection_id, work.row_id, work.job_type;
