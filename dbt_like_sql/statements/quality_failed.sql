-- Cells in error of some classes, by column, batch and class: those that people see, of rows that are there.
select cell.column_id, batch.key as batch, cell.error_class, count(*) as cells
from autofill.cell
join autofill.row
    on row.collection_id = cell.collection_id and row.row_id = cell.row_id and row.deleted_at is null
join autofill.batch on batch.collection_id = row.collection_id and batch.id = row.batch_id
where cell.collection_id = %(collection_id)s and cell.error_class = any(%(classes)s) and not cell.user_set
  and (%(batches)s::text[] is null or batch.key = any(%(batches)s))
group by cell.column_id, batch.key, cell.error_class;
