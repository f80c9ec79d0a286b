-- Lock the work of rows in key order, waiting; the rows are locked already where the caller changes demand.
select work.collection_id, work.row_id, work.state
from autofill.work
join unnest(%(collections)s::int[], %(rows)s::bigint[]) as wanted (collection_id, row_id)
    using (collection_id, row_id)
order by work.collection_id, work.row_id
for update of work;
