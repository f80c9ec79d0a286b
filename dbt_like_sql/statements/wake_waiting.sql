-- Rows that wait for a file which has come, by the path that they were loaded with: those whose path a row with a digest has.
-- Deferred ones are not due, and one that somebody holds looks again by itself. One pass over the rows, as the
-- comparison of the load before it, and only where something waits: memory does not grow with the folder.
with wanted as materialized (
    select work.collection_id, work.row_id, row.path from autofill.work
    cross join lateral (
        select inputs ->> %(path)s as path from autofill.row
        where row.collection_id = work.collection_id and row.row_id = work.row_id
        offset 0
    ) as row
    where work.collection_id = %(collection_id)s and work.state = 'delayed' and work.waiting is not null
      and not work.deferred and row.path is not null
),
there as materialized (
    -- of nothing that waits, nothing is looked for
    select distinct inputs ->> %(path)s as path from autofill.row
    where exists (select from wanted) and collection_id = %(collection_id)s and deleted_at is null
      and inputs ? %(digest)s and inputs ->> %(path)s in (select path from wanted)
),
due as materialized (
    select work.collection_id, work.row_id from autofill.work
    join wanted on wanted.collection_id = work.collection_id and wanted.row_id = work.row_id
    where wanted.path in (select path from there) and work.state = 'delayed'
    order by work.row_id
    for update of work skip locked
)
update autofill.work set state = 'queued', available_at = null, queued_at = clock_timestamp()
from unnest(array(select collection_id from due), array(select row_id from due)) as woken (collection_id, row_id)
where work.collection_id = woken.collection_id and work.row_id = woken.row_id;
