-- Rows of a sweep, locked by the statement before, become work of this worker. Returns what it now has.
-- (any(array(select unnest(…))): of a list whose length it knows the planner would rather filter the whole collection.)
with swept as (
    select sweep.collection_id, sweep.job_type, dispatch.id as dispatch_id, dispatch.signal,
        autofill.dispatch_demand(dispatch) as demand, dispatch.columns = '{}' as cascade
    from autofill.sweep join autofill.dispatch on dispatch.id = sweep.dispatch_id
    where sweep.id = %(sweep_id)s
),
started as (
    insert into autofill.work
        (collection_id, row_id, state, job_type, priority, queued_at, worker_id, claim, signal, dispatch_id, demand,
         cascade)
    select collection_id, row_id, 'computing', job_type, 'sweep', clock_timestamp(),
        %(worker_id)s, %(claim)s, signal, dispatch_id, demand, cascade
    from swept, unnest(%(fresh)s::bigint[]) as row_id
    returning collection_id, row_id, job_type
),
taken as (
    update autofill.work
    set state = 'computing', worker_id = %(worker_id)s, claim = %(claim)s, dirty = false
    from swept
    where work.collection_id = swept.collection_id and work.row_id = any(array(select unnest(%(queued)s::bigint[])))
      -- a form that the index on queued work does not know: by it, all of the lane would be read
      and work.state is not distinct from 'queued'
    returning work.collection_id, work.row_id, work.job_type
)
select * from started union all select * from taken;
