-- The limits named get these values, of everything, of a namespace or of a collection; the others keep theirs.
with new as (
    select * from jsonb_to_record(%(values)s::jsonb)
        as v (cap int, weight int, dispatches int, backlog bigint)
),
of_all as (
    update autofill.limits set cap = new.cap from new
    where %(namespace)s::text is null and %(values)s::jsonb ? 'cap'
    returning 1
),
of_namespace as (
    update autofill.namespace set
        cap = case when %(values)s::jsonb ? 'cap' then new.cap else namespace.cap end,
        weight = case when %(values)s::jsonb ? 'weight' then new.weight else namespace.weight end,
        dispatches = case when %(values)s::jsonb ? 'dispatches' then new.dispatches else namespace.dispatches end
    from new
    where namespace.name = %(namespace)s and %(collection)s::text is null
    returning 1
),
of_collection as (
    update autofill.collection set
        cap = case when %(values)s::jsonb ? 'cap' then new.cap else collection.cap end,
        dispatches = case when %(values)s::jsonb ? 'dispatches' then new.dispatches else collection.dispatches end,
        backlog = case when %(values)s::jsonb ? 'backlog' then new.backlog else collection.backlog end
    from new, autofill.namespace
    where namespace.id = collection.namespace_id and namespace.name = %(namespace)s and collection.name = %(collection)s
    returning 1
)
select * from of_all union all select * from of_namespace union all select * from of_collection;
