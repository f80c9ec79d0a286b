-- Slots that came free, or were given and not used, go back; always by the claimer of their worker.
update autofill.slot set held = held - unused.slots
from unnest(%(collections)s::int[], %(slots)s::int[]) as unused (collection_id, slots)
where slot.worker_id = %(worker_id)s and slot.collection_id = unused.collection_id;
