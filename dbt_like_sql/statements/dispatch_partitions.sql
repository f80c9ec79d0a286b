-- What a dispatch did, by batch and column: one materialization each.
select batch.key as batch, by_column.column_id, by_column.outcomes, coalesce(spent.tokens_in, 0) as tokens_in,
    coalesce(spent.tokens_out, 0) as tokens_out, coalesce(spent.cost, 0) as cost, coalesce(spent.unpriced, 0) as unpriced
from (
    select collection_id, batch_id, column_id, jsonb_object_agg(outcome, cells) as outcomes from (
        select collection_id, batch_id, column_id, outcome, sum(cardinality(row_ids)) as cells
        from autofill.completion where dispatch_id = %(dispatch_id)s group by 1, 2, 3, 4
    ) as by_outcome
    group by 1, 2, 3
) as by_column
join autofill.batch on batch.collection_id = by_column.collection_id and batch.id = by_column.batch_id
left join (
    select batch_id, column_id, sum(tokens_in)::bigint as tokens_in, sum(tokens_out)::bigint as tokens_out,
        coalesce(sum(cost), 0)::bigint as cost,
        coalesce(sum(cardinality(row_ids)) filter (where cost is null and model is not null), 0)::bigint as unpriced
    from autofill.attempt where dispatch_id = %(dispatch_id)s group by 1, 2
) as spent on spent.batch_id = by_column.batch_id and spent.column_id = by_column.column_id
order by batch.id, by_column.column_id;
