-- Slots given out and not used go back.
update autofill.slot set held = held - unused.slots
from unnest(%(collections)s::int[], %(slots)s::int[]) as unused (collection_id, slots)
where slot.worker_id = %(worker_id)s and slot.collection_id = unused.collection_id;
