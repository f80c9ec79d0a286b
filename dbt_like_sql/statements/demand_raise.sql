-- Work that a new demand meets is raised, never ignored (R6). Its tuples are locked by a statement before this one.
-- Explicit demand for the same column belongs to the later signal; the displaced dispatch is credited here (R7).
-- (any(array(select unnest(…))): of a list whose length it knows the planner would rather filter the whole collection.)
with new as (
    select dispatch.*, autofill.dispatch_demand(dispatch) as demand from autofill.dispatch where id = %(dispatch_id)s
),
credited as (
    insert into autofill.completion (dispatch_id, collection_id, batch_id, column_id, outcome, row_ids)
    select case when (met.value ->> 0)::bigint < new.signal then (met.value ->> 2)::bigint else new.id end,
        row.collection_id, row.batch_id, met.key::smallint, 'superseded', array_agg(row.row_id)
    from new
    join autofill.work on work.collection_id = new.collection_id and work.row_id = any(array(select unnest(%(rows)s::bigint[])))
    join autofill.row on row.collection_id = work.collection_id and row.row_id = work.row_id
    cross join jsonb_each(work.demand) as met
    where new.demand ? met.key and (met.value ->> 2)::bigint <> new.id
    group by 1, 2, 3, 4
),
raised as (
    update autofill.work set
        demand = autofill.demand_merge(work.demand, new.demand),
        dispatch_id = case when work.signal < new.signal then new.id else work.dispatch_id end,
        signal = greatest(work.signal, new.signal),
        priority = least(work.priority, %(priority)s::autofill.priority),
        cascade = work.cascade or new.columns = '{}',
        -- out of a lane that is held: what is not of that lane need not wait with it
        job_type = case when %(priority)s = 'edit' and work.state <> 'computing' and exists (
                            select from autofill.hold
                            join autofill.collection on collection.namespace_id = hold.namespace_id
                            where hold.lifted_at is null and collection.id = new.collection_id
                              and (hold.collection_id is null or hold.collection_id = new.collection_id)
                              and hold.job_type = work.job_type and hold.column_id is null)
                        then %(job_type)s else work.job_type end,
        raised = work.raised + 1,
        dirty = work.state = 'computing',
        -- an edit is tried at once and afresh, but never sooner than a storm's brake allows
        attempts = case when %(priority)s = 'edit' then '{}' else work.attempts end,
        waiting = case when %(priority)s = 'edit' then null else work.waiting end,
        state = case when work.state = 'parked' then 'queued'
                     when %(priority)s = 'edit' and work.state = 'delayed' and not work.deferred then 'queued'
                     else work.state end,
        available_at = case when %(priority)s = 'edit' and not work.deferred then null else work.available_at end
    from new
    where work.collection_id = new.collection_id and work.row_id = any(array(select unnest(%(rows)s::bigint[])))
)
-- whose end this may have been: to be looked at when the transaction has committed
select distinct owner from new
join autofill.work on work.collection_id = new.collection_id and work.row_id = any(array(select unnest(%(rows)s::bigint[])))
cross join unnest(work.dispatch_id || coalesce(work.owners, '{}')) as owner;
