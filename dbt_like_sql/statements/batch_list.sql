select id, key, source, first_row, last_row, rejected, rejected_rows, loaded_at, actor from autofill.batch
where collection_id = %(collection_id)s and id > %(after)s
order by id
limit %(limit)s;
