-- Under the claim lock: the worker holds these slots more, counted against every cap from now on. Nothing comes back if
-- the worker has ended.
insert into autofill.slot (worker_id, collection_id, held)
select worker.id, given.collection_id, given.slots
from unnest(%(collections)s::int[], %(slots)s::int[]) as given (collection_id, slots)
join autofill.worker on worker.id = %(worker_id)s and worker.ended_at is null
on conflict (worker_id, collection_id) do update set held = slot.held + excluded.held
returning collection_id;
