-- What people changed, latest first: of a collection, a row or a cell.
select history.id, history.row_id, history.column_id, dispatch.reason, dispatch.actor, history.changed_at,
    history.was_set, history.was, history.now_set, history.now, history.dispatch_id, dispatch.reverts
from autofill.history join autofill.dispatch on dispatch.id = history.dispatch_id
where history.collection_id = %(collection_id)s
  and (%(row_id)s::bigint is null or history.row_id = %(row_id)s)
  and (%(column_id)s::smallint is null or history.column_id = %(column_id)s)
  and history.id < %(before)s
order by history.id desc
limit %(limit)s;
