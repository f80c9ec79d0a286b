-- Under the claim lock: what claim_lanes says of lanes, for one more slot for each of these visits (a collection is named
-- once for each), so that what an edit makes due does not wait for another column's slow call.
with wanted as (
    select collection_id, count(*)::int as slots from unnest(%(collections)s::int[]) as collection_id group by 1
),
held as materialized (
    select collection_id, sum(held)::int as slots from autofill.slot where held > 0 group by collection_id
),
space as materialized (
    select namespace_id, sum(slots)::int as slots
    from held join autofill.collection on collection.id = collection_id
    group by namespace_id
)
select wanted.collection_id, '' as job_type, collection.namespace_id, wanted.slots as urgent, 0 as handed,
    false as is_swept, collection.cap, coalesce(held.slots, 0) as held, coalesce(held.slots, 0) as here,
    namespace.weight, namespace.cap as space_cap, coalesce(space.slots, 0) as space_held,
    coalesce(space.slots, 0) as space_here,
    limits.cap as total_cap, (select coalesce(sum(slots), 0)::int from held) as total_held
from wanted
join autofill.collection on collection.id = wanted.collection_id
join autofill.namespace on namespace.id = collection.namespace_id
left join held on held.collection_id = wanted.collection_id
left join space on space.namespace_id = namespace.id
cross join autofill.limits;
