delete from autofill.budget
where namespace_id = %(namespace_id)s and collection_id is not distinct from %(collection_id)s
  and column_id is not distinct from %(column_id)s::smallint and period = %(period)s
returning id;
