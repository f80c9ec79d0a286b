-- What calls cost, by day (UTC), as long as attempts are kept. A call that was interrupted is counted apart: what it
-- cost is not known. A column that is gone has the name it had last.
select
    namespace.name as namespace,
    collection.name as collection,
    last_known.name as "column",
    spent.model,
    spent.day,
    spent.calls,
    spent.failed,
    spent.interrupted,
    spent.tokens_in,
    spent.tokens_out
from (
    select
        collection_id,
        column_id,
        model,
        (ended_at at time zone 'UTC')::date as day,
        coalesce(sum(cardinality(row_ids)) filter (where outcome <> 'interrupted'), 0)::bigint as calls,
        coalesce(sum(cardinality(row_ids)) filter (where outcome = 'failed'), 0)::bigint as failed,
        coalesce(sum(cardinality(row_ids)) filter (where outcome = 'interrupted'), 0)::bigint as interrupted,
        sum(tokens_in)::bigint as tokens_in,
        sum(tokens_out)::bigint as tokens_out
    from {{ source('autofill', 'attempt') }}
    group by 1, 2, 3, 4
) as spent
join {{ source('autofill', 'collection') }} on collection.id = spent.collection_id
join {{ source('autofill', 'namespace') }} on namespace.id = collection.namespace_id
left join lateral (
    select definition.name from {{ source('autofill', 'definition') }}
    where definition.collection_id = spent.collection_id and definition.column_id = spent.column_id
    order by definition.version desc
    limit 1
) as last_known on true
