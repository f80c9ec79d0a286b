-- What dispatches did, by dispatch, batch and column.
select done.dispatch_id, batch.key as batch, done.column_id, done.outcomes, coalesce(spent.tokens_in, 0) as tokens_in,
    coalesce(spent.tokens_out, 0) as tokens_out, coalesce(spent.cost, 0) as cost, coalesce(spent.unpriced, 0) as unpriced
from (
    select dispatch_id, collection_id, batch_id, column_id, jsonb_object_agg(outcome, cells) as outcomes from (
        select dispatch_id, collection_id, batch_id, column_id, outcome, sum(cardinality(row_ids)) as cells
        from autofill.completion where dispatch_id = any(%(dispatches)s) group by 1, 2, 3, 4, 5
    ) as by_outcome
    group by 1, 2, 3, 4
) as done
join autofill.batch on batch.collection_id = done.collection_id and batch.id = done.batch_id
left join (
    select dispatch_id, batch_id, column_id, sum(tokens_in)::bigint as tokens_in, sum(tokens_out)::bigint as tokens_out,
        coalesce(sum(cost), 0)::bigint as cost,
        coalesce(sum(cardinality(row_ids)) filter (where cost is null and model is not null), 0)::bigint as unpriced
    from autofill.attempt where dispatch_id = any(%(dispatches)s) group by 1, 2, 3
) as spent on spent.dispatch_id = done.dispatch_id and spent.batch_id = done.batch_id
    and spent.column_id = done.column_id
order by done.dispatch_id, batch.id, done.column_id;
