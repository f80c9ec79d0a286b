-- Lock rows in key order, waiting; returns those that exist.
select row.collection_id, row.row_id, row.batch_id, row.deleted_at
from autofill.row
join unnest(%(collections)s::int[], %(rows)s::bigint[]) as wanted (collection_id, row_id)
    using (collection_id, row_id)
order by row.collection_id, row.row_id
for no key update of row;
