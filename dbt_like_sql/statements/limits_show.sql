-- Every limit with what there is under it: of everything, of each namespace, of each collection.
with held as (
    select namespace_id, collection_id, sum(held)::int as slots
    from autofill.slot join autofill.collection on collection.id = collection_id
    group by namespace_id, collection_id
)
select null as namespace, null as collection, limits.cap, null::int as weight, null::int as dispatches,
    null::bigint as backlog, (select coalesce(sum(slots), 0)::int from held) as held
from autofill.limits
union all
select namespace.name, null, cap, weight, dispatches, null,
    (select coalesce(sum(slots), 0)::int from held where held.namespace_id = namespace.id)
from autofill.namespace
union all
select namespace.name, collection.name, collection.cap, null, collection.dispatches, collection.backlog,
    coalesce(held.slots, 0)
from autofill.collection
join autofill.namespace on namespace.id = collection.namespace_id
left join held on held.collection_id = collection.id
where collection.version > 0
order by 1 nulls first, 2 nulls first;
