-- Holds for a budget of these namespaces whose budgets are all below what they allow, or gone.
update autofill.hold set lifted_at = clock_timestamp(), lifted_by = %(actor)s
where lifted_at is null and reason = 'budget' and namespace_id = any(%(namespaces)s::int[])
  and not exists (
    select from unnest(%(reached_namespaces)s::int[], %(reached_collections)s::int[], %(reached_columns)s::smallint[])
        as reached (namespace_id, collection_id, column_id)
    where (reached.namespace_id, reached.collection_id, reached.column_id)
        is not distinct from (hold.namespace_id, hold.collection_id, hold.column_id))
returning id;
