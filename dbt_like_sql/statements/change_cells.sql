-- A person's side of cells of one row: set to a value (a blank one too), or given up again. The row and its work are
-- locked. What was there before goes to the history in the same statement; a cell that is as wanted is left alone.
with wanted as (
    select * from unnest(%(columns)s::smallint[], %(sets)s::boolean[], %(values)s::jsonb[]) as c (column_id, is_set, value)
),
before as materialized (
    select wanted.*, coalesce(cell.user_set, false) as was_set, cell.user_value as was
    from wanted
    left join autofill.cell on cell.collection_id = %(collection_id)s and cell.row_id = %(row_id)s
        and cell.column_id = wanted.column_id
),
remembered as (
    insert into autofill.history (collection_id, row_id, column_id, dispatch_id, was_set, was, now_set, now)
    select %(collection_id)s, %(row_id)s, column_id, %(dispatch_id)s, was_set, was, is_set, value
    from before
    where is_set or was_set
)
insert into autofill.cell as cell
    (collection_id, row_id, column_id, user_set, user_value, user_actor, user_at, change)
select %(collection_id)s, %(row_id)s, column_id, is_set, value, case when is_set then %(actor)s end,
    case when is_set then clock_timestamp() end, %(signal)s
from before
where is_set or was_set
on conflict (collection_id, row_id, column_id) do update set
    user_set = excluded.user_set, user_value = excluded.user_value, user_actor = excluded.user_actor,
    user_at = excluded.user_at, change = excluded.change
returning cell.column_id;
