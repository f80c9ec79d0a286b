-- The files of a batch, in the order of their rows.
select file.key, batch.key as batch, file.name, file.first_row, file.last_row, file.rejected_rows
from autofill.batch_file as file
join autofill.batch on batch.collection_id = file.collection_id and batch.id = file.batch_id
where file.collection_id = %(collection_id)s and file.batch_id = %(batch_id)s
order by file.first_row, file.key
limit %(limit)s;
