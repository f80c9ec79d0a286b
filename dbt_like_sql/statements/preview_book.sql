-- A call that was made to try a definition out: paid for, so it is booked like any other, and touches no cell.
with booked as (
    insert into autofill.attempt (dispatch_id, collection_id, batch_id, column_id, row_ids, outcome, error_class, error,
        worker_id, model, tokens_in, tokens_out, tokens_cached, tokens_reasoning, cost)
    select %(dispatch_id)s, row.collection_id, row.batch_id, %(column_id)s, array[row.row_id],
        case when %(error_class)s::text is null then 'succeeded' else 'failed' end, %(error_class)s, %(error)s,
        %(worker_id)s, %(model)s, %(tokens_in)s, %(tokens_out)s, %(tokens_cached)s, %(tokens_reasoning)s,
        case when %(model)s::text is not null then %(cost)s::bigint end
    from autofill.row
    where row.collection_id = %(collection_id)s and row.row_id = %(row_id)s
)
insert into autofill.usage_delta (namespace_id, collection_id, column_id, model, dispatch_id, calls, failed,
    tokens_in, tokens_cached, tokens_out, tokens_reasoning, cost, unpriced)
select namespace_id, id, %(column_id)s, %(model)s, %(dispatch_id)s, 1, (%(error_class)s::text is not null)::int,
    %(tokens_in)s, %(tokens_cached)s, %(tokens_out)s, %(tokens_reasoning)s, coalesce(%(cost)s::bigint, 0),
    (%(cost)s::bigint is null)::int
from autofill.collection
where id = %(collection_id)s and %(model)s::text is not null;
