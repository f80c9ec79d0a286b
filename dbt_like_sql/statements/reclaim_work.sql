-- The visits of workers that have ended go back to the queue with their demand, priority and age. An interruption is
-- neither a failure nor canceled: it is recorded, and costs no attempt. A row that is there at death after death, though
-- its calls are made apart by then, ends more than their process: it comes back ever more seldom. Whether rows
-- wait, work_park says, which comes after: this one's snapshot may be older than a pause or a resume.
with orphan as materialized (
    select work.collection_id, work.row_id, work.worker_id, work.dispatch_id, work.computing, work.slots,
        least(work.deaths + 1, 10) as deaths
    from autofill.slot
    join autofill.worker on worker.id = slot.worker_id and worker.ended_at is not null
    join autofill.work on work.worker_id = slot.worker_id and work.collection_id = slot.collection_id
        and work.state = 'computing'
    order by work.collection_id, work.row_id
    limit %(limit)s
    for update of work skip locked
),
recorded as (
    insert into autofill.attempt
        (dispatch_id, collection_id, batch_id, column_id, row_ids, outcome, error_class, error, worker_id)
    select orphan.dispatch_id, row.collection_id, row.batch_id, called, array_agg(row.row_id), 'interrupted',
        'crashed', 'its worker ended without finishing', orphan.worker_id
    from orphan
    join autofill.row using (collection_id, row_id)
    cross join unnest(orphan.computing) as called
    group by 1, 2, 3, 4, 9
),
freed as (
    update autofill.slot set held = held - orphans.slots
    from (select worker_id, collection_id, sum(slots) as slots from orphan group by 1, 2) as orphans
    where slot.worker_id = orphans.worker_id and slot.collection_id = orphans.collection_id
)
update autofill.work
set state = case when orphan.rest is null then 'queued' else 'delayed' end::autofill.work_state,
    available_at = clock_timestamp() + orphan.rest,
    deferred = orphan.rest is not null,
    deaths = orphan.deaths,
    cascade = true,  -- its visit may have answered what makes other cells due
    worker_id = null, claim = null, dirty = false, computing = null, slots = 1
from (
    select orphan.*, case when deaths > 4 then least('10 min', interval '30 s' * 2 ^ (deaths - 5)) end as rest
    from orphan
) as orphan
where work.collection_id = orphan.collection_id and work.row_id = orphan.row_id
returning work.collection_id, work.row_id;
