-- The computed cells of a page of rows, as shown.
select status.row_id, status.column_id, status.value, status.status, status.error_class, status.error, status.model
from autofill.cell_status as status
where status.collection_id = %(collection_id)s and status.row_id in (
    select row_id from autofill.row
    where collection_id = %(collection_id)s and row_id > %(after)s and deleted_at is null
    order by row_id
    limit %(limit)s
)
order by status.row_id, status.column_id;
