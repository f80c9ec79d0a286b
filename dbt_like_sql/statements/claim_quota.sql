-- Under the claim lock: give this worker slots of each lane it can serve, max-min by water-filling over lanes, never
-- above a collection's cap (R4). Nothing here waits for anybody. Rows are taken outside the lock, against these slots.
-- Water-filling: lanes ascending by want; the level is the equal share of what is left at the first lane that wants
-- more than it; every lane gets min(want, level). O(lanes log lanes).
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
    select lane_walk.*, depth.rows from lane_walk cross join lateral (
        select count(*)::int as rows from (
            select from autofill.work
            where state = 'queued' and work.collection_id = lane_walk.collection_id
              and work.job_type = lane_walk.job_type
            limit %(slots)s
        ) as probe
    ) as depth
    where lane_walk.job_type = any(%(job_types)s)
),
-- Lanes deep in what sweeps have handed over. While there is one, the collection's sweeps wait in the other lanes, and a
-- sweep waits while as much of its own lane is to be tried again: a fast column before a slow one, or a provider that is
-- away, would fill `work` with all of the collection.
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
swept as (
    select open.* from open
    where not exists (
        select from deep where deep.collection_id = open.collection_id and deep.job_type <> open.job_type)
      and not exists (
        select from autofill.work
        where state = 'delayed' and work.collection_id = open.collection_id and work.job_type = open.job_type
        offset %(backlog)s limit 1)
),
held as (select collection_id, sum(held)::int as slots from autofill.slot where held > 0 group by collection_id),
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
lane as (
    select
        collection_id, job_type,
        least(coalesce(queued.rows, 0), case when may_probe then 1 end) as queued,
        case when swept.collection_id is null then 0 when may_probe then 1 else %(sweep_slots)s end as swept,
        collection.cap - coalesce(held.slots, 0) as room,
        -- sweeps leave about 5 %% of the cap, and at least one slot, to edits
        collection.cap - coalesce(held.slots, 0)
            - case when collection.cap > 1 then greatest(1, collection.cap / 20) else 0 end as sweep_room
    from queued full join swept using (collection_id, job_type)
    join autofill.collection on collection.id = collection_id
    left join held using (collection_id)
    left join holding using (collection_id, job_type)
    where may_probe is not false
),
-- lanes of one collection share its room, what is queued first: what one lane may take is not there for the next
wanted as (
    select *, greatest(0, least(queued, room - coalesce(sum(queued) over earlier, 0)))::int as want_queued
    from lane where room > 0
    window earlier as (partition by collection_id order by job_type rows between unbounded preceding and 1 preceding)
),
sweepable as (
    select *, least(swept, %(slots)s - want_queued) as could_sweep,
        sweep_room - sum(want_queued) over (partition by collection_id) as left_for_sweeps
    from wanted
),
clipped as (
    select collection_id, job_type, want_queued,
        want_queued + greatest(0, least(
            could_sweep, left_for_sweeps - coalesce(sum(could_sweep) over earlier, 0)))::int as want
    from sweepable
    window earlier as (partition by collection_id order by job_type rows between unbounded preceding and 1 preceding)
),
ranked as (
    select *, %(slots)s - coalesce(sum(want) over (order by want, tie rows between unbounded preceding and 1 preceding), 0)
        as left_over,
        count(*) over () - row_number() over (order by want, tie) + 1 as lanes_left,
        row_number() over (order by want, tie) as rank
    from (select *, random() as tie from clipped where want > 0) as shuffled
),
level as (
    select left_over / lanes_left as share, left_over %% lanes_left as remainder, rank as first_rank
    from ranked where want > left_over / lanes_left
    order by rank limit 1
),
granted as (
    select collection_id, job_type, want_queued,
        case when level.first_rank is null or ranked.rank < level.first_rank then want
             else least(want, level.share + case when rank - first_rank < remainder then 1 else 0 end)
        end::int as slots
    from ranked left join level on true
),
split as (
    -- of its own slots, too, a worker leaves some to edits: all its sweeps together get no more than sweep_slots
    select collection_id, job_type, least(slots, want_queued) as queued,
        greatest(0, least(slots - least(slots, want_queued), %(sweep_slots)s - coalesce(
            sum(slots - least(slots, want_queued)) over (
                order by collection_id, job_type rows between unbounded preceding and 1 preceding), 0)))::int as swept
    from granted
),
taken as (
    insert into autofill.slot (worker_id, collection_id, held)
    select worker.id, collection_id, sum(queued + swept) from split
    join autofill.worker on worker.id = %(worker_id)s and worker.ended_at is null
    where queued + swept > 0
    group by worker.id, collection_id
    on conflict (worker_id, collection_id) do update set held = slot.held + excluded.held
    returning collection_id
)
select collection_id, job_type, queued, swept
from split join taken using (collection_id)
where queued + swept > 0
order by collection_id, job_type;
