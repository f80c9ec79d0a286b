select id from autofill.dispatch where collection_id = %(collection_id)s order by id desc limit %(limit)s;
