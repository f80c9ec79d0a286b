select namespace_id from autofill.collection where id = %(collection_id)s;
