-- Rows that are locked, as is their work, wait while every dispatch that wants them is paused, and go on when one is not.
-- A statement of its own, after the locks: it sees what those who held the rows before have committed, so that of a pause
-- and whatever else comes at once, the later to hold a row leaves it as it should be.
with judged as materialized (
    select work.ctid as place, work.state, coalesce((
        select bool_and(paused_at is not null) from autofill.dispatch
        where dispatch.id = any(work.dispatch_id || coalesce(work.owners, '{}'))
    ), false) as paused
    from unnest(%(collections)s::int[], %(rows)s::bigint[]) as wanted (collection_id, row_id)
    cross join lateral (
        select work.ctid, work.* from autofill.work
        where work.collection_id = wanted.collection_id and work.row_id = wanted.row_id
        offset 0
    ) as work
    where work.state <> 'computing'
)
update autofill.work set
    state = case when state = 'parked' then 'queued' else 'parked' end::autofill.work_state,
    available_at = null, deferred = false
-- by their place, which nobody moves while they are locked
where ctid = any(array(select place from judged where paused <> (state = 'parked')));
