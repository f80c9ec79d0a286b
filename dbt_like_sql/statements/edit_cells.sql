-- A person's values: always what is shown, a blank one too. The row and its work are locked.
insert into autofill.cell as cell
    (collection_id, row_id, column_id, user_set, user_value, user_actor, user_at, change)
select %(collection_id)s, %(row_id)s, edited.column_id, true, edited.value, %(actor)s, clock_timestamp(), %(signal)s
from unnest(%(columns)s::smallint[], %(values)s::jsonb[]) as edited (column_id, value)
on conflict (collection_id, row_id, column_id) do update set
    user_set = true, user_value = excluded.user_value, user_actor = excluded.user_actor, user_at = excluded.user_at,
    change = excluded.change;
