-- Of some rows, by column and batch: answers, those with a quote that stands in an input, those that also have one that
-- stands nowhere, and the cells that have no answer for want of one.
select cell.column_id, batch.key as batch,
    count(*) filter (where cell.error_class is null) as answers,
    count(*) filter (where cell.error_class is null and coalesce(cell.details -> 'evidence', '[]') <> '[]') as quoted,
    count(*) filter (where cell.error_class is null and cell.details ? 'unverified') as unverified,
    count(*) filter (where cell.error_class = 'unsupported') as unsupported
from autofill.cell
join autofill.row
    on row.collection_id = cell.collection_id and row.row_id = cell.row_id and row.deleted_at is null
join autofill.batch on batch.collection_id = row.collection_id and batch.id = row.batch_id
where cell.collection_id = %(collection_id)s and cell.row_id = any(%(rows)s) and cell.column_id = any(%(columns)s)
  and not cell.user_set
  and (cell.error_class = 'unsupported' or (cell.error_class is null and cell.ai_value is not null))
group by cell.column_id, batch.key;
