-- Rows that wait for files which have come are due. Deferred ones are not, and one that somebody holds looks again by
-- itself. Edits to such rows wake them anyway.
with due as materialized (
    select work.collection_id, work.row_id from autofill.work
    cross join lateral (
        select inputs ->> %(column)s as path from autofill.row
        where row.collection_id = work.collection_id and row.row_id = work.row_id
        offset 0
    ) as row
    where work.collection_id = %(collection_id)s and work.state = 'delayed' and work.waiting is not null
      and not work.deferred and row.path = any(%(paths)s::text[])
    for update of work skip locked
)
update autofill.work set state = 'queued', available_at = null, queued_at = clock_timestamp()
from unnest(array(select collection_id from due), array(select row_id from due)) as woken (collection_id, row_id)
where work.collection_id = woken.collection_id and work.row_id = woken.row_id;
