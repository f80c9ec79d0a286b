-- Calls, latest first: of a collection, or of one dispatch, one column, one row; a page of those with an id below `before`.
select id, dispatch_id, column_id, row_ids, outcome, error_class, error, worker_id, model, tokens_in, tokens_out, ended_at,
    tokens_cached, tokens_reasoning, cost
from autofill.attempt
where collection_id = %(collection_id)s and id < %(before)s
  and (%(dispatch_id)s::bigint is null or dispatch_id = %(dispatch_id)s)
  and (%(column_id)s::smallint is null or column_id = %(column_id)s)
  and (%(row_id)s::bigint is null or %(row_id)s = any(row_ids))
  and (not %(failed)s or outcome <> 'succeeded')
order by id desc
limit %(limit)s;
