-- Under the claim lock: one more slot for each of these visits, so that what an edit makes due does not wait for another
-- column's slow call; in key order, as far as the cap goes (R4). Granted slots are written to the work by visits_widen.
with wanted as (
    select collection_id, count(*)::int as slots from unnest(%(collections)s::int[]) as collection_id group by 1
),
granted as (
    select wanted.collection_id, least(wanted.slots, greatest(0, collection.cap - coalesce(held.slots, 0)))::int as slots
    from wanted join autofill.collection on collection.id = wanted.collection_id
    left join lateral (
        select sum(held)::int as slots from autofill.slot where slot.collection_id = wanted.collection_id
    ) as held on true
)
update autofill.slot set held = held + granted.slots
from granted join autofill.worker on worker.id = %(worker_id)s and worker.ended_at is null
where slot.worker_id = worker.id and slot.collection_id = granted.collection_id and granted.slots > 0
returning slot.collection_id, granted.slots;
