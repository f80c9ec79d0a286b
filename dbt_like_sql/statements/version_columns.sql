select definition from autofill.definition
where collection_id = %(collection_id)s and version = %(number)s
order by position;
