-- A collection exists in its namespace, whoever made it.
insert into autofill.collection (namespace_id, name)
select id, %(name)s from autofill.namespace where name = %(namespace)s
on conflict (namespace_id, name) do nothing;
