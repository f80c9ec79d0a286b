-- Under the claim lock: every lane this worker can serve that has something to do, how much of it, and the caps in force
-- around it with what is held of them (R4). `here` is what workers of the same pools hold: they share what they give, so
-- fairness is judged among them. One row more than the slots is counted: whether more edits wait than there is room for.
-- Nothing here waits for anybody. Who gets how much, cell_engine.fairness says. Of a namespace's lanes that have sweeps
-- alone it gives to those that hold least, and walks few: no more come than `walks` (null: all), if they have room for all
-- the slots.
with recursive lane_walk (collection_id, job_type) as (
    -- a loose scan of work_queued: one probe a lane, whatever its depth
    (select collection_id, job_type from autofill.work where state = 'queued'
     order by collection_id, job_type limit 1)
    union all
    select next.* from lane_walk as here cross join lateral (
        select collection_id, job_type from autofill.work
        where state = 'queued' and (collection_id, job_type) > (here.collection_id, here.job_type)
        order by collection_id, job_type limit 1
    ) as next
),
queued as (
    select lane_walk.*, ahead.rows as urgent, behind.rows as handed
    from lane_walk
    cross join lateral (
        select count(*)::int as rows from (
            select from autofill.work
            where state = 'queued' and work.collection_id = lane_walk.collection_id
              and work.job_type = lane_walk.job_type and priority < 'sweep'
            limit %(slots)s + 1
        ) as probe
    ) as ahead
    cross join lateral (
        select count(*)::int as rows from (
            select from autofill.work
            where state = 'queued' and work.collection_id = lane_walk.collection_id
              and work.job_type = lane_walk.job_type and priority = 'sweep'
            limit %(slots)s + 1
        ) as probe
    ) as behind
    where lane_walk.job_type = any(%(job_types)s)
),
-- Lanes deep in what sweeps have handed over. While there is one, the collection's sweeps wait in the other lanes, and a
-- sweep waits while as much of its own lane is to be tried again: a fast column before a slow one, or a provider that is
-- away, would fill `work` with all of the collection. Of rows that wait for files ten times as many may: those behind them
-- have theirs, perhaps.
deep as materialized (
    select lane_walk.* from lane_walk
    join autofill.collection on collection.id = lane_walk.collection_id
    cross join lateral (
        select from autofill.work
        where state = 'queued' and work.collection_id = lane_walk.collection_id
          and work.job_type = lane_walk.job_type and priority = 'sweep'
        offset greatest(%(backlog)s, 2 * collection.cap) limit 1
    ) as beyond
),
open as (
    select distinct collection_id, job_type from autofill.sweep
    where closed_at is null and not paused and job_type = any(%(job_types)s)
),
delayed_walk (collection_id, job_type) as (
    -- lanes of which anything is to be tried again: likewise, for there are few, and each open lane would be probed
    (select collection_id, job_type from autofill.work where state = 'delayed'
     order by collection_id, job_type limit 1)
    union all
    select next.* from delayed_walk as here cross join lateral (
        select collection_id, job_type from autofill.work
        where state = 'delayed' and (collection_id, job_type) > (here.collection_id, here.job_type)
        order by collection_id, job_type limit 1
    ) as next
),
crowded as materialized (
    select lane.* from delayed_walk as lane
    where exists (
        select from autofill.work
        where state = 'delayed' and waiting is null
          and work.collection_id = lane.collection_id and work.job_type = lane.job_type
        offset %(backlog)s limit 1)
      or exists (
        select from autofill.work
        where state = 'delayed' and waiting is not null
          and work.collection_id = lane.collection_id and work.job_type = lane.job_type
        offset 10 * %(backlog)s limit 1)
),
swept as (
    select open.* from open
    where not exists (
        select from deep where deep.collection_id = open.collection_id and deep.job_type <> open.job_type)
      and not exists (
        select from crowded where crowded.collection_id = open.collection_id and crowded.job_type = open.job_type)
),
-- Lanes whose calls are not to be made now (quota, auth, budget); one row goes out where this worker may try one.
holding as (
    select collection_id, job_type, bool_and(may_probe) as may_probe from (
        select coalesce(hold.collection_id, collection.id) as collection_id, job_type,
            coalesce(probing_by = %(worker_id)s and probing_until > clock_timestamp(), false) as may_probe
        from autofill.hold
        left join autofill.collection
            on hold.collection_id is null and collection.namespace_id = hold.namespace_id
        where lifted_at is null and (expires_at is null or expires_at > clock_timestamp()) and column_id is null
    ) as held_lane
    group by collection_id, job_type
),
held as materialized (
    select collection_id, sum(held)::int as slots,
        coalesce(sum(held) filter (where worker.job_types && %(job_types)s), 0)::int as here
    from autofill.slot join autofill.worker on worker.id = slot.worker_id
    where held > 0
    group by collection_id
),
space as materialized (
    select namespace.id, weight, namespace.cap, coalesce(sum(held.slots), 0)::int as held,
        coalesce(sum(held.here), 0)::int as here
    from autofill.namespace
    left join (held join autofill.collection on collection.id = held.collection_id)
        on collection.namespace_id = namespace.id
    group by namespace.id
)
select collection_id, job_type, namespace_id, urgent, handed, is_swept, cap, held, here, weight, space_cap, space_held,
    space_here, total_cap, total_held, is_probe
from (
    select collection_id, job_type, collection.namespace_id, coalesce(queued.urgent, 0) as urgent,
        coalesce(queued.handed, 0) as handed, swept.collection_id is not null as is_swept,
        collection.cap, coalesce(held.slots, 0) as held, coalesce(held.here, 0) as here,
        space.weight, space.cap as space_cap, space.held as space_held, space.here as space_here,
        limits.cap as total_cap, (select coalesce(sum(slots), 0)::int from held) as total_held,
        holding.may_probe is not null as is_probe, queued.collection_id is not null as is_queued,
        row_number() over ahead as place,
        sum(collection.cap - coalesce(held.slots, 0)) over (ahead rows between unbounded preceding and 1 preceding) as room
    from queued full join swept using (collection_id, job_type)
    join autofill.collection on collection.id = collection_id
    join space on space.id = collection.namespace_id
    left join held using (collection_id)
    left join holding using (collection_id, job_type)
    cross join autofill.limits
    where may_probe is not false
    window ahead as (
        partition by collection.namespace_id, queued.collection_id is null order by coalesce(held.here, 0), random())
) as lane
where is_queued or %(walks)s::int is null or place <= %(walks)s or coalesce(room, 0) < %(slots)s
-- the planner's order would decide who has which lot, and a sequence of tests be another the next time
order by collection_id, job_type;
