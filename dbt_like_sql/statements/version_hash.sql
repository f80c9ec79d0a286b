select hash from autofill.version where collection_id = %(collection_id)s and number = %(number)s;
