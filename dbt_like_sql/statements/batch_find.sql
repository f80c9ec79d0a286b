select id, key, source, first_row, last_row, rejected, rejected_rows, loaded_at, actor from autofill.batch
where collection_id = %(collection_id)s and key = any(%(keys)s)
order by id;
