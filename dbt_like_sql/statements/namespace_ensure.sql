-- A statement of its own: one that waits for another maker of it would not see it in its own snapshot.
-- (Not exists: a conflict would use up an id, at each apply.)
insert into autofill.namespace (name)
select %(namespace)s where not exists (select from autofill.namespace where name = %(namespace)s)
on conflict (name) do nothing;
