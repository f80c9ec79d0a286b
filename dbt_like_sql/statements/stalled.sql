-- Lanes that have had something to do for longer than `seconds` and nothing in flight, with why.
with waiting as (
    select collection_id, job_type, min(queued_at) as since, bool_and(priority = 'sweep') as is_swept
    from autofill.work where state = 'queued' group by collection_id, job_type
    union all
    select sweep.collection_id, job_type, min(coalesce(last_done.completed_at, dispatch.created_at)), true
    from autofill.sweep
    join autofill.dispatch on dispatch.id = sweep.dispatch_id
    left join lateral (
        select max(completed_at) as completed_at from autofill.completion where dispatch_id = dispatch.id
    ) as last_done on true
    where closed_at is null and not paused
    group by sweep.collection_id, job_type
)
select namespace.name || '/' || collection.name as collection, waiting.job_type,
    extract(epoch from clock_timestamp() - min(waiting.since))::float8 as seconds,
    case
        when not exists (
            select from autofill.worker
            where ended_at is null and beat_at + lease > clock_timestamp() and waiting.job_type = any(job_types)
        ) then 'no live worker serves this job type'
        when hold.reason is not null then 'held for ' || hold.reason || ': ' || hold.message
        when held.slots >= collection.cap - case when bool_and(waiting.is_swept) then edits.of_collection else 0 end
        then 'calls in flight: ' || held.slots || ', of a cap of ' || collection.cap
        when held.of_namespace >= namespace.cap - case when bool_and(waiting.is_swept) then edits.of_namespace else 0 end
        then 'calls of namespace ' || namespace.name || ' in flight: ' || held.of_namespace || ', of a cap of '
            || namespace.cap
        when held.in_all >= limits.cap - case when bool_and(waiting.is_swept) then edits.in_all else 0 end
        then 'calls in flight in all: ' || held.in_all || ', of a cap of ' || limits.cap
        -- the bounds of claim_lanes
        when handed_over.rows > greatest(%(backlog)s, 2 * collection.cap)
        then 'over ' || greatest(%(backlog)s, 2 * collection.cap) || ' rows wait in lane ' || handed_over.job_type
        when delayed.failed > %(backlog)s then 'over ' || %(backlog)s || ' rows wait to be tried again'
        when delayed.waiting > 10 * %(backlog)s then 'over ' || 10 * %(backlog)s || ' rows wait for files'
        else 'workers are busy elsewhere'
    end as reason
from waiting
join autofill.collection on collection.id = waiting.collection_id
join autofill.namespace on namespace.id = collection.namespace_id
cross join autofill.limits
cross join lateral (
    select coalesce(sum(held) filter (where slot.collection_id = collection.id), 0)::int as slots,
        coalesce(sum(held) filter (where of.namespace_id = namespace.id), 0)::int as of_namespace,
        coalesce(sum(held), 0)::int as in_all
    from autofill.slot join autofill.collection as of on of.id = slot.collection_id
    where held > 0
) as held
-- What sweeps leave to edits, as fairness.py has it.
cross join lateral (
    select case when collection.cap > 1 then greatest(1, collection.cap / 20) else 0 end as of_collection,
        case when namespace.cap > 1 then greatest(1, namespace.cap / 20) else 0 end as of_namespace,
        case when limits.cap > 1 then greatest(1, limits.cap / 20) else 0 end as in_all
) as edits
left join lateral (
    select other.job_type, count(*) as rows from (
        select job_type from autofill.work
        where state = 'queued' and work.collection_id = waiting.collection_id and work.job_type <> waiting.job_type
          and priority = 'sweep'
    ) as other
    group by other.job_type order by 2 desc limit 1
) as handed_over on true
left join lateral (
    select count(*) filter (where work.waiting is null) as failed, count(work.waiting) as waiting from autofill.work
    where state = 'delayed' and work.collection_id = waiting.collection_id and work.job_type = waiting.job_type
) as delayed on true
left join lateral (
    select reason, message from autofill.hold
    where lifted_at is null and (expires_at is null or expires_at > clock_timestamp())
      and hold.namespace_id = namespace.id and (hold.collection_id is null or hold.collection_id = collection.id)
      and hold.job_type = waiting.job_type
    order by column_id nulls first limit 1
) as hold on true
where waiting.since < clock_timestamp() - %(seconds)s * interval '1 second'
group by namespace.name, collection.name, waiting.job_type, held.slots, collection.cap, held.of_namespace, namespace.cap,
    held.in_all, limits.cap, edits.of_collection, edits.of_namespace, edits.in_all, handed_over.job_type, handed_over.rows, delayed.failed, delayed.waiting, hold.reason, hold.message
order by 1, 2;
