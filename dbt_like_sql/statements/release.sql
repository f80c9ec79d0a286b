-- Visits end, but for those that leave with their last result (finalize_cells). Their work is locked by a statement before
-- this one; their rows need not be, for all demand is raised under the lock of its work. `done` and the other ends that follow
-- from a plan are compare-and-swap on the token and on how often demand had come when the visit planned: more demand
-- keeps the visit, also that of a sweep whose signal is older (R6). Only a row that is deferred or handed back goes
-- regardless of it.
-- The slots that come free are returned, not written: only the claimer writes slots, or the claim lock would wait for
-- this transaction.
-- `owes` tells of a row that is done whether demand may be left that the batch's results do not meet (to scan what each
-- asks for took 2.6 µs a row).
-- A row that `awaits` another's call is delayed, and woken when that has ended.
--   done: nothing due, the tuple goes · delay: tried again in `seconds` · hand_over: to another pool, with its age
--   defer: too many rounds · hand_back: this worker is stopping
with item as materialized (
    select * from unnest(
        %(collections)s::int[], %(rows)s::bigint[], %(claims)s::bigint[], %(signals)s::bigint[], %(raised)s::int[],
        %(ends)s::text[], %(seconds)s::float8[], %(job_types)s::text[], %(awaits)s::bytea[], %(owing)s::boolean[],
        %(answered)s::jsonb[]
    ) with ordinality as i (collection_id, row_id, claim, signal, raised, ending, seconds, job_type, awaits, owes,
        answered, number)
),
judged as materialized (
    select item.*, work.claim is not null as won,
        work.claim is not null and (work.raised = item.raised or ending in ('defer', 'hand_back')) as ended,
        work.ctid as place, work.dispatch_id, work.owners, work.demand, work.slots, work.computing
    from item
    left join lateral (
        select work.ctid, work.* from autofill.work
        where work.collection_id = item.collection_id and work.row_id = item.row_id
        offset 0
    ) as work on work.worker_id = %(worker_id)s and work.claim = item.claim
),
gone as (
    -- by their place, which nobody moves while they are locked: joined, a planner that takes `work` for nearly empty
    -- compares each with each (150 ms instead of 2 for 500)
    delete from autofill.work
    where ctid = any(array(select place from judged where ended and ending = 'done'))
),
going_on as materialized (
    select judged.*, met,
        -- by those whose demand is left
        coalesce((
            select bool_and(paused_at is not null) from autofill.dispatch
            where dispatch.id = any(
                judged.dispatch_id || coalesce(autofill.demand_owners(demand - met, judged.dispatch_id), '{}'))
        ), false) as paused,
        array(select jsonb_object_keys(answered)) as tried,
        -- the call it waits for has ended meanwhile: nobody wakes it any more
        case when awaits is null then false else not exists (
            select from autofill.cache_owner as owner
            join autofill.collection on collection.namespace_id = owner.namespace_id
            where collection.id = judged.collection_id and owner.fingerprint = judged.awaits) end as over
    from judged
    -- columns answered in this transaction (column -> signal of the call; and, if it is of the cache, that of the call which
    -- brought it) whose demand is not newer than the call
    cross join lateral (
        select array(select key from jsonb_each(demand)
                     where (value ->> 0)::bigint <= (answered -> key ->> 0)::bigint
                       and coalesce((value ->> 1)::bigint <= (answered -> key ->> 1)::bigint, true)) as met
        offset 0
    ) as answered_for
    where won and not (ended and ending = 'done')
),
requeued as (
    update autofill.work set
        state = case when paused then 'parked' when seconds is null or over then 'queued' else 'delayed'
                end::autofill.work_state,
        available_at = case when not paused and not over then clock_timestamp() + seconds * interval '1 second' end,
        awaits = going_on.awaits,
        waits = case when going_on.awaits is null then 0 else least(work.waits + 1, 1000) end,
        deferred = ending = 'defer' and not paused,
        priority = case when ending = 'delay' then least(work.priority, 'retry') else work.priority end,
        job_type = coalesce(going_on.job_type, work.job_type),
        worker_id = null, claim = null, dirty = false, computing = null, slots = 1,
        demand = work.demand - met,
        -- what was answered by name may have made other cells due
        cascade = work.cascade or cardinality(tried) > 0,
        attempts = work.attempts - tried,
        waiting = nullif(work.waiting - tried, '{}')
    from going_on
    where going_on.ended
      and work.collection_id = going_on.collection_id and work.row_id = going_on.row_id
),
kept as (
    update autofill.work set
        demand = work.demand - met,
        cascade = work.cascade or cardinality(tried) > 0,
        attempts = work.attempts - tried,
        waiting = nullif(work.waiting - tried, '{}')
    from going_on
    where not going_on.ended
      and work.collection_id = going_on.collection_id and work.row_id = going_on.row_id
),
told as materialized (
    select judged.*, row.batch_id, row.deleted_at is not null as deleted
    from judged
    -- probed by key, whatever the statistics say: or all of `row` is read for 500
    cross join lateral (
        select batch_id, deleted_at from autofill.row
        where row.collection_id = judged.collection_id and row.row_id = judged.row_id
        offset 0
    ) as row
    where ended and (ending = 'done' and owes and demand <> '{}' or ending = 'hand_back' and computing is not null)
),
credited as (
    -- what was asked for and needed no call has ended too
    insert into autofill.completion (dispatch_id, collection_id, batch_id, column_id, outcome, row_ids)
    select (value ->> 2)::bigint, collection_id, batch_id, key::smallint,
        case when deleted then 'deleted' else 'fresh' end, array_agg(row_id)
    from told cross join jsonb_each(demand)
    where ending = 'done'
      and coalesce((value ->> 0)::bigint > (answered -> key ->> 0)::bigint, true)
    group by 1, 2, 3, 4, 5
),
interrupted as (
    -- calls given up by a worker that is stopping: neither a failure nor canceled, and no attempt
    insert into autofill.attempt
        (dispatch_id, collection_id, batch_id, column_id, row_ids, outcome, error_class, error, worker_id)
    select dispatch_id, collection_id, batch_id, called, array_agg(row_id), 'interrupted', 'crashed',
        'its worker stopped', %(worker_id)s
    from told cross join unnest(computing) as called
    where ending = 'hand_back'
    group by 1, 2, 3, 4
)
-- told together of those that came to the same: a row for each is an object for each in Python
select case when ended then 'released' when won then 'kept' else 'lost' end as outcome, collection_id,
    case when ended then sum(slots)::int else 0 end as slots,
    case when ended then dispatch_id || coalesce(owners, '{}') else '{}' end as dispatches, array_agg(number) as numbers
from judged
group by collection_id, ended, won, dispatch_id, owners;
