select version from autofill.collection where id = %(collection_id)s;
