-- Choose and lock the next rows of the oldest open sweep of a lane, behind `after`, that no other claimer is walking:
-- holes first, then those behind the cursor. Nothing waits; a row that somebody holds comes back with locked = false.
-- Rows are chosen before they are locked, so that a row skipped is a row known.
-- A sweep limited to some cells (only_if) examines a fixed window of row ids and passes it even if it finds nothing; one
-- limited to errors finds them by their index. What it finds by numbers are candidates: a plan decides.
with walked as materialized (
    select sweep.id, dispatch_id, cursor, last_row, only_if, columns, collection.version,
        only_if is not null and not only_if && array['empty', 'outdated'] as only_errors,
        case when only_if && array['empty', 'outdated'] then least(last_row, cursor + %(window)s) else last_row
        end as examined
    from autofill.sweep
    join autofill.dispatch on dispatch.id = sweep.dispatch_id
    join autofill.collection on collection.id = sweep.collection_id
    where sweep.collection_id = %(collection_id)s and job_type = %(job_type)s and closed_at is null and not paused
      and sweep.id > %(after)s
    order by sweep.id
    limit 1
    for update of sweep skip locked
),
hole as materialized (
    select row_id from autofill.sweep_hole where sweep_id = (select id from walked) order by row_id limit %(slots)s
),
fresh as materialized (
    (
        select row.row_id from autofill.row
        where not (select only_errors from walked)
          and row.collection_id = %(collection_id)s and row.deleted_at is null
          and row.row_id > (select cursor from walked) and row.row_id <= (select examined from walked)
          and ((select only_if from walked) is null or exists (
              select from walked
              cross join unnest(walked.columns) as wanted (column_id)
              left join autofill.cell on cell.collection_id = row.collection_id and cell.row_id = row.row_id
                  and cell.column_id = wanted.column_id
              where case
                  when cell.fingerprint is null then 'empty' = any(walked.only_if)
                  else 'error:' || cell.error_class = any(walked.only_if)
                      or ('outdated' = any(walked.only_if) and (
                          cell.read_change < row.change
                          or exists (
                              select from autofill.definition as now
                              left join autofill.definition as read on read.collection_id = now.collection_id
                                  and read.version = cell.version and read.column_id = now.column_id
                              left join autofill.cell as input on input.collection_id = row.collection_id
                                  and input.row_id = row.row_id and input.column_id = any(now.depends_on)
                              where now.collection_id = row.collection_id and now.version = walked.version
                                and now.column_id = wanted.column_id
                                and (now.hash is distinct from read.hash or input.change > cell.read_change)
                          )))
              end
          ))
        order by row.row_id
        limit %(slots)s - (select count(*) from hole)
    )
    union all
    (
        select distinct cell.row_id from autofill.cell
        where (select only_errors from walked)
          and cell.collection_id = %(collection_id)s and cell.error_class is not null
          and cell.error_class = any(
              array(select substr(condition, 7) from unnest((select only_if from walked)) as condition))
          and cell.column_id = any((select columns from walked)::smallint[])
          and cell.row_id > (select cursor from walked) and cell.row_id <= (select last_row from walked)
        order by cell.row_id
        limit %(slots)s - (select count(*) from hole)
    )
),
candidate as materialized (select row_id from hole union select row_id from fresh),
locked as materialized (
    select row_id from autofill.row
    where collection_id = %(collection_id)s and row_id = any(array(select row_id from candidate))
    order by row_id
    for no key update skip locked
)
select walked.id as sweep_id, walked.dispatch_id, candidate.row_id, locked.row_id is not null as locked,
    -- the cursor passes what was chosen, and all that was examined when the window came up short
    case when (select count(*) from candidate) < %(slots)s then walked.examined
         else coalesce((select max(row_id) from fresh), walked.cursor) end as cursor
from walked
left join candidate on true
left join locked using (row_id)
order by candidate.row_id;
