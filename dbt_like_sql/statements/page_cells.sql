-- The computed cells of a page of rows, as shown.
-- (num_nonnulls: without statistics `is null` is taken for one row in 200, and the page then sorts the collection.)
select status.row_id, status.column_id, status.value, status.status, status.error_class, status.error, status.model,
    status.inputs_moved, status.details, status.proposed
from autofill.cell_status as status
where status.collection_id = %(collection_id)s and status.row_id = any(array(
    select row_id from autofill.row
    where collection_id = %(collection_id)s and row_id > %(after)s and num_nonnulls(deleted_at) <> 1
    order by row_id
    limit %(limit)s
))
order by status.row_id, status.column_id;
