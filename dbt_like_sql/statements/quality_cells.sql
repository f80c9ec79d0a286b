-- Cells that were computed or edited, by column and batch, from the key's index alone: each batch is a range of it.
select counted.column_id, batch.key as batch, counted.cells
from autofill.batch
cross join lateral (
    select cell.column_id, count(*) as cells from autofill.cell
    where cell.collection_id = batch.collection_id and cell.row_id between batch.first_row and batch.last_row
    group by cell.column_id
    offset 0
) as counted
where batch.collection_id = %(collection_id)s and (%(batches)s::text[] is null or batch.key = any(%(batches)s));
