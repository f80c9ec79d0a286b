-- Files by their content, each with the key of its batch.
select file.key, batch.key as batch, file.name, file.first_row, file.last_row, file.rejected_rows
from autofill.batch_file as file
join autofill.batch on batch.collection_id = file.collection_id and batch.id = file.batch_id
where file.collection_id = %(collection_id)s and file.key = any(%(keys)s);
