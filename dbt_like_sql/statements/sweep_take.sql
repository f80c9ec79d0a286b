-- Rows of sweeps, locked by the statements before, become work of this worker, and the cursors move in the same
-- transaction: what they passed but could not have becomes a hole, holes that were taken go, and a sweep closes only at its
-- end and without holes (else an open edit costs it its row). Returns what the visits plan with, once a sweep; the rows that
-- were queued already, of which the work is read; and the dispatches whose sweep has closed.
with walked as materialized (
    -- the rows of each sweep as an array, so that nothing is joined: the planner expects few, and would compare all
    select sweep_id, cursor, fresh::bigint[] as fresh, fresh::bigint[] || raised::bigint[] as taken, missed::bigint[] as missed
    from unnest(%(sweeps)s::bigint[], %(cursors)s::bigint[], %(fresh)s::text[], %(raised)s::text[], %(missed)s::text[])
        as w (sweep_id, cursor, fresh, raised, missed)
),
swept as materialized (
    select walked.sweep_id, walked.fresh, sweep.collection_id, sweep.job_type, dispatch.id as dispatch_id,
        dispatch.signal, autofill.dispatch_demand(dispatch) as demand, dispatch.columns = '{}' as cascade,
        collection.version
    from walked
    join autofill.sweep on sweep.id = walked.sweep_id
    join autofill.dispatch on dispatch.id = sweep.dispatch_id
    join autofill.collection on collection.id = sweep.collection_id
    where cardinality(walked.fresh) > 0
),
started as (
    insert into autofill.work
        (collection_id, row_id, state, job_type, priority, queued_at, worker_id, claim, signal, dispatch_id, demand,
         cascade)
    select collection_id, row_id, 'computing', job_type, 'sweep', clock_timestamp(),
        %(worker_id)s, %(claim)s, signal, dispatch_id, demand, cascade
    from swept cross join lateral unnest(fresh) as row_id
),
queued as (
    update autofill.work
    set state = 'computing', worker_id = %(worker_id)s, claim = %(claim)s, dirty = false
    from unnest(%(queued_collections)s::int[], %(queued_rows)s::bigint[]) as met (collection_id, row_id)
    where work.collection_id = met.collection_id and work.row_id = met.row_id
      -- a form that the index on queued work does not know: by it, all of the lane would be read
      and work.state is not distinct from 'queued'
    returning work.collection_id, work.row_id
),
filled as (
    delete from autofill.sweep_hole using walked
    where sweep_hole.sweep_id = walked.sweep_id and sweep_hole.row_id = any(walked.taken)
),
held as (
    insert into autofill.sweep_hole (sweep_id, row_id)
    select sweep_id, row_id from walked cross join unnest(missed) as row_id
    on conflict do nothing
),
advanced as (
    update autofill.sweep
    set cursor = walked.cursor,
        closed_at = case
            when walked.cursor >= last_row and cardinality(walked.missed) = 0
                 and not exists (select from autofill.sweep_hole
                                 where sweep_hole.sweep_id = sweep.id and not row_id = any(walked.taken))
            then clock_timestamp() end
    from walked
    where sweep.id = walked.sweep_id
    returning sweep.dispatch_id, closed_at is not null as closed
)
select sweep_id, collection_id, null::bigint as row_id, job_type, dispatch_id, signal, nullif(demand, '{}') as demand,
    version, false as closed
from swept
union all select null, collection_id, row_id, null, null, null, null, null, false from queued
union all select null, null, null, null, dispatch_id, null, null, null, true from advanced where closed;
