-- The queue by lane: how deep it is, how old, and what is in flight.
select
    namespace.name as namespace,
    collection.name as collection,
    work.job_type,
    count(*) filter (where work.state = 'queued') as queued,
    count(*) filter (where work.state = 'delayed') as delayed,
    count(*) filter (where work.state = 'parked') as parked,
    count(*) filter (where work.state = 'computing') as computing,
    min(work.queued_at) filter (where work.state = 'queued') as oldest,
    extract(epoch from clock_timestamp() - min(work.queued_at) filter (where work.state = 'queued'))::float8
        as oldest_age
from {{ source('autofill', 'work') }}
join {{ source('autofill', 'collection') }} on collection.id = work.collection_id
join {{ source('autofill', 'namespace') }} on namespace.id = collection.namespace_id
group by namespace.name, collection.name, work.job_type
