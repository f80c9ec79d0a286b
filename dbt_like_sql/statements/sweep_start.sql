-- Rows of sweeps, locked by the statements before, become work of this worker. Returns what their visits plan with, once a
-- sweep, and the rows that were queued already: of them the work is read.
with fresh as (
    -- the rows of each sweep as an array, so that nothing is joined: the planner expects few, and would compare all
    select * from unnest(%(sweeps)s::bigint[], %(rows)s::text[]) as f (sweep_id, rows)
),
swept as materialized (
    select fresh.sweep_id, fresh.rows::bigint[] as rows, sweep.collection_id, sweep.job_type, dispatch.id as dispatch_id,
        dispatch.signal, autofill.dispatch_demand(dispatch) as demand, dispatch.columns = '{}' as cascade,
        collection.version
    from fresh
    join autofill.sweep on sweep.id = fresh.sweep_id
    join autofill.dispatch on dispatch.id = sweep.dispatch_id
    join autofill.collection on collection.id = sweep.collection_id
),
started as (
    insert into autofill.work
        (collection_id, row_id, state, job_type, priority, queued_at, worker_id, claim, signal, dispatch_id, demand,
         cascade)
    select collection_id, row_id, 'computing', job_type, 'sweep', clock_timestamp(),
        %(worker_id)s, %(claim)s, signal, dispatch_id, demand, cascade
    from swept cross join lateral unnest(rows) as row_id
),
taken as (
    -- queued already
    update autofill.work
    set state = 'computing', worker_id = %(worker_id)s, claim = %(claim)s, dirty = false
    from unnest(%(queued_collections)s::int[], %(queued_rows)s::bigint[]) as queued (collection_id, row_id)
    where work.collection_id = queued.collection_id and work.row_id = queued.row_id
      -- a form that the index on queued work does not know: by it, all of the lane would be read
      and work.state is not distinct from 'queued'
    returning work.collection_id, work.row_id
)
select sweep_id, collection_id, null::bigint as row_id, job_type, dispatch_id, signal, nullif(demand, '{}') as demand, version
from swept
union all select null, collection_id, row_id, null, null, null, null, null from taken;
