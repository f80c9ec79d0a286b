-- After a claim that failed half-way: the worker's slots are what it has in flight.
update autofill.slot set held = (
    select coalesce(sum(work.slots), 0) from autofill.work
    where work.worker_id = slot.worker_id and work.collection_id = slot.collection_id
)
where worker_id = %(worker_id)s;
