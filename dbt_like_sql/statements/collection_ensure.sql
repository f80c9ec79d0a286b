-- A namespace and collection exist; whoever made them.
with space as (
    insert into autofill.namespace (name) values (%(namespace)s) on conflict (name) do nothing returning id
),
found as (
    select id from space union all select id from autofill.namespace where name = %(namespace)s limit 1
)
insert into autofill.collection (namespace_id, name)
select id, %(name)s from found
on conflict (namespace_id, name) do nothing;
