-- A cap on a namespace, a collection or a column, for ever or for each day.
insert into autofill.budget as budget (namespace_id, collection_id, column_id, period, amount, actor)
values (%(namespace_id)s, %(collection_id)s, %(column_id)s::smallint, %(period)s, %(amount)s, %(actor)s)
on conflict (namespace_id, collection_id, column_id, period) do update
set amount = excluded.amount, actor = excluded.actor, set_at = clock_timestamp();
