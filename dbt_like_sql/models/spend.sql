-- What calls took, by day (UTC): those of a model for ever, others (functions, and calls that reached no model) as long as
-- attempts are kept. A call that was interrupted is counted apart: what it cost is not known. A column that is gone has
-- the name it had last.
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
    spent.tokens_cached,
    spent.tokens_out,
    spent.tokens_reasoning,
    spent.cost / 1000000000 as cost,
    spent.unpriced
from (
    select
        collection_id,
        column_id,
        model,
        day,
        sum(calls)::bigint as calls,
        sum(failed)::bigint as failed,
        0::bigint as interrupted,
        sum(tokens_in)::bigint as tokens_in,
        sum(tokens_cached)::bigint as tokens_cached,
        sum(tokens_out)::bigint as tokens_out,
        sum(tokens_reasoning)::bigint as tokens_reasoning,
        sum(cost) as cost,
        sum(unpriced)::bigint as unpriced
    from (
        -- one snapshot: what the janitor rolls up meanwhile is in exactly one of the two
        select collection_id, column_id, model, day, calls, failed, tokens_in, tokens_cached, tokens_out,
            tokens_reasoning, cost, unpriced
        from {{ source('autofill', 'usage') }}
        union all
        select collection_id, column_id, model, day, calls, failed, tokens_in, tokens_cached, tokens_out,
            tokens_reasoning, cost, unpriced
        from {{ source('autofill', 'usage_delta') }}
    ) as used
    group by 1, 2, 3, 4
    union all
    select
        collection_id,
        column_id,
        null,
        (ended_at at time zone 'UTC')::date as day,
        coalesce(sum(cardinality(row_ids)) filter (where outcome <> 'interrupted'), 0)::bigint,
        coalesce(sum(cardinality(row_ids)) filter (where outcome = 'failed'), 0)::bigint,
        coalesce(sum(cardinality(row_ids)) filter (where outcome = 'interrupted'), 0)::bigint,
        0, 0, 0, 0, 0, 0
    from {{ source('autofill', 'attempt') }}
    where model is null
    group by 1, 2, 4
) as spent
join {{ source('autofill', 'collection') }} on collection.id = spent.collection_id
join {{ source('autofill', 'namespace') }} on namespace.id = collection.namespace_id
left join lateral (
    select definition.name from {{ source('autofill', 'definition') }}
    where definition.collection_id = spent.collection_id and definition.column_id = spent.column_id
    order by definition.version desc
    limit 1
) as last_known on true
