-- Of a batch that had been stored before: whether each answer's visit still goes on, and the change number its cell shows.
-- (A person's value that has come since is not what the visit knows: none is told, so that what reads it stays outdated.)
select work.claim is not null as held, coalesce(cell.change, 0) as change
from unnest(%(collections)s::int[], %(rows)s::bigint[], %(claims)s::bigint[], %(columns)s::smallint[])
    with ordinality as i (collection_id, row_id, claim, column_id, number)
left join lateral (
    select * from autofill.work
    where work.collection_id = i.collection_id and work.row_id = i.row_id
    offset 0
) as work on work.worker_id = %(worker_id)s and work.claim = i.claim
left join lateral (
    select * from autofill.cell
    where cell.collection_id = i.collection_id and cell.row_id = i.row_id and cell.column_id = i.column_id
    offset 0
) as cell on not cell.user_set
order by i.number;
