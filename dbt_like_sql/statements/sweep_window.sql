-- Choose and lock the next rows of the oldest open sweep of a lane, behind
-- `after`, that no other claimer is walking: holes first, then
-- the window behind the cursor. Nothing waits; a row that somebody holds comes back with locked = false.
-- Rows are chosen before they are locked, so that a row skipped is a row known.
with walked as materialized (
    select id, dispatch_id, collection_id, job_type, cursor, last_row from autofill.sweep
    where collection_id = %(collection_id)s and job_type = %(job_type)s and closed_at is null and not paused
      and id > %(after)s
    order by id
    limit 1
    for update skip locked
),
hole as materialized (
    select row_id from autofill.sweep_hole where sweep_id = (select id from walked) order by row_id limit %(slots)s
),
fresh as materialized (
    select row_id from autofill.row
    where collection_id = %(collection_id)s and deleted_at is null
      and row_id > (select cursor from walked) and row_id <= (select last_row from walked)
    order by row_id
    limit %(slots)s - (select count(*) from hole)
),
candidate as materialized (select row_id from hole union select row_id from fresh),
locked as materialized (
    select row_id from autofill.row
    where collection_id = %(collection_id)s and row_id = any(array(select row_id from candidate))
    order by row_id
    for no key update skip locked
)
select walked.id as sweep_id, walked.dispatch_id, candidate.row_id, locked.row_id is not null as locked,
    -- the cursor passes what was chosen, and goes to the end when the window came up short
    case when (select count(*) from candidate) < %(slots)s then walked.last_row
         else coalesce((select max(row_id) from fresh), walked.cursor) end as cursor
from walked
left join candidate on true
left join locked using (row_id)
order by candidate.row_id;
