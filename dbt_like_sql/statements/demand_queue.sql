-- Rows that nothing wanted so far become queued work. They are locked, and seen to have none.
insert into autofill.work
    (collection_id, row_id, state, job_type, priority, queued_at, signal, dispatch_id, demand, cascade)
select dispatch.collection_id, row_id, 'queued', %(job_type)s, %(priority)s, clock_timestamp(), dispatch.signal,
    dispatch.id, autofill.dispatch_demand(dispatch), dispatch.columns = '{}'
from autofill.dispatch, unnest(%(rows)s::bigint[]) as row_id
where dispatch.id = %(dispatch_id)s;
