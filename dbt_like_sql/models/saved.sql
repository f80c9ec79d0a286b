-- Calls that were not made, by day (UTC), as long as completions are kept. A column that is gone has the name it had last.
select
    namespace.name as namespace,
    collection.name as collection,
    last_known.name as "column",
    spared.day,
    spared.cached,
    spared.fresh,
    spared.unchanged,
    spared.tokens_in,
    spared.tokens_out,
    spared.cost
from (
    select
        collection_id,
        column_id,
        (completed_at at time zone 'UTC')::date as day,
        coalesce(sum(cardinality(row_ids)) filter (where outcome = 'cached'), 0)::bigint as cached,
        coalesce(sum(cardinality(row_ids)) filter (where outcome = 'fresh'), 0)::bigint as fresh,
        coalesce(sum(cardinality(row_ids)) filter (where outcome = 'unchanged'), 0)::bigint as unchanged,
        sum(saved_tokens_in)::bigint as tokens_in,
        sum(saved_tokens_out)::bigint as tokens_out,
        sum(saved_cost)::bigint as cost
    from {{ source('autofill', 'completion') }}
    where outcome in ('cached', 'fresh', 'unchanged')
    group by 1, 2, 3
) as spared
join {{ source('autofill', 'collection') }} on collection.id = spared.collection_id
join {{ source('autofill', 'namespace') }} on namespace.id = collection.namespace_id
left join lateral (
    select definition.name from {{ source('autofill', 'definition') }}
    where definition.collection_id = spared.collection_id and definition.column_id = spared.column_id
    order by definition.version desc
    limit 1
) as last_known on true
