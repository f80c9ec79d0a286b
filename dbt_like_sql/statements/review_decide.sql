-- What people (or a time-out) decided of answers that wait for review: each is the one that was seen, or it is left alone.
-- Accepted, the answer is shown; rejected, its cell is at rest without one. Rows and their work are locked. What was
-- decided is written down in the same statement.
with wanted as (
    select * from unnest(%(rows)s::bigint[], %(columns)s::smallint[], %(seen)s::timestamptz[]) as w (row_id, column_id, seen)
),
decided as (
    update autofill.cell set
        error_class = case when not %(accepted)s then 'rejected' end,
        error = case when not %(accepted)s then %(error)s end,
        held = case when not %(accepted)s then cell.held end,
        change = %(signal)s
    from wanted
    where cell.collection_id = %(collection_id)s and cell.row_id = wanted.row_id and cell.column_id = wanted.column_id
      and cell.error_class = 'proposed' and not cell.user_set and cell.computed_at = wanted.seen
    returning cell.row_id, cell.column_id, cell.ai_value, cell.version, cell.model
)
insert into autofill.decision (collection_id, row_id, column_id, dispatch_id, accepted, value, why, version, model)
select %(collection_id)s, row_id, column_id, %(dispatch_id)s, %(accepted)s, ai_value, %(why)s, version, model
from decided
returning row_id, column_id;
