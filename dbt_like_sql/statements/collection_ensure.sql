-- A collection exists in its namespace, whoever made it. (Not exists: a conflict would use up an id, at each apply.)
insert into autofill.collection (namespace_id, name)
select id, %(name)s from autofill.namespace
where name = %(namespace)s
  and not exists (select from autofill.collection as known
                  where known.namespace_id = namespace.id and known.name = %(name)s)
on conflict (namespace_id, name) do nothing;
