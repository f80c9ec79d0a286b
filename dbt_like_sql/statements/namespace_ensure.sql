-- A statement of its own: one that waits for another maker of it would not see it in its own snapshot.
insert into autofill.namespace (name) values (%(namespace)s) on conflict (name) do nothing;
