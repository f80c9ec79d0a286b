-- The work met by a sweep: state, or null where somebody else holds the tuple. Nothing waits.
-- (any(array(select unnest(…))): of a list whose length it knows the planner would rather filter the whole collection.)
with met as materialized (
    select row_id from autofill.work
    where collection_id = %(collection_id)s and row_id = any(array(select unnest(%(rows)s::bigint[])))
),
locked as materialized (
    select row_id, state from autofill.work
    where collection_id = %(collection_id)s and row_id = any(array(select row_id from met))
    order by row_id
    for update skip locked
)
select met.row_id, locked.state from met left join locked using (row_id);
