-- Queued and delayed rows of a paused dispatch wait, unless another one wants them too.
update autofill.work set state = 'parked', available_at = null, deferred = false
where work.collection_id = %(collection_id)s and work.row_id = any(%(rows)s)
  and work.state in ('queued', 'delayed') and work.dispatch_id = %(dispatch_id)s and work.owners is null;
