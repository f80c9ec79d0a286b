-- Those dispatches that have ended, with all of their completions before the cursor: nothing of them is still to come.
select dispatch.id, dispatch.collection_id, namespace.name || '/' || collection.name as collection, dispatch.reason,
    dispatch.actor, dispatch.key, dispatch.created_at, dispatch.forced is not null as is_tick
from autofill.dispatch
join autofill.collection on collection.id = dispatch.collection_id
join autofill.namespace on namespace.id = collection.namespace_id
where dispatch.id = any(%(dispatches)s) and dispatch.ended_at is not null
  and not exists (
    select from autofill.completion
    where completion.dispatch_id = dispatch.id and (completion.xid, completion.id) > (%(xid)s::xid8, %(id)s))
order by dispatch.id
limit %(limit)s;
