select key, id from autofill.collection_column where collection_id = %(collection_id)s;
