select count(*) as batches, coalesce(max(id), 0) as latest from autofill.batch where collection_id = %(collection_id)s;
