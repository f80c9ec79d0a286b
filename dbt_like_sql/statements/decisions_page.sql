-- What was decided of proposed answers, latest first: of a collection, a row or a cell.
select decision.id, decision.row_id, decision.column_id, decision.accepted, dispatch.actor, decision.decided_at,
    decision.value, decision.why, decision.version, decision.model, decision.dispatch_id
from autofill.decision join autofill.dispatch on dispatch.id = decision.dispatch_id
where decision.collection_id = %(collection_id)s
  and (%(row_id)s::bigint is null or decision.row_id = %(row_id)s)
  and (%(column_id)s::smallint is null or decision.column_id = %(column_id)s)
  and decision.id < %(before)s
order by decision.id desc
limit %(limit)s;
