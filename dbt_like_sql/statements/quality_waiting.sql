-- Since when the longest-waiting cell of each computed column waits that is due: of rows in the queue (not those that
-- wait for a file), and of rows that no claimer has come to. Beside it, when a column that is not computed on change was
-- last refreshed, by a dispatch that named it and has ended: one of a schedule as a tick asks for it, in all rows, not a
-- person's for some of them. And since when the version is in force.
select definition.column_id,
    least(queued.since, ahead.since) as since,
    extract(epoch from clock_timestamp() - least(queued.since, ahead.since))::float8 as age,
    coalesce(queued.rows, 0) as rows,
    ahead.paused,
    refreshed.created_at as refreshed_at,
    refreshed.dispatch_id,
    version.created_at as applied_at,
    clock_timestamp() as now
from autofill.collection
join autofill.version on version.collection_id = collection.id and version.number = collection.version
join autofill.definition
    on definition.collection_id = collection.id and definition.version = collection.version
    and definition.kind is not null
left join lateral (
    select min(work.queued_at) as since, count(*) as rows from autofill.work
    where work.collection_id = collection.id and (work.cascade or work.demand ? definition.column_id::text)
      and not (work.state = 'delayed' and work.waiting is not null)
) as queued on true
left join lateral (
    select min(dispatch.created_at) as since, bool_and(sweep.paused) as paused
    from autofill.sweep
    join autofill.dispatch on dispatch.id = sweep.dispatch_id
    where sweep.collection_id = collection.id and sweep.closed_at is null
      and (dispatch.columns = '{}' or definition.column_id = any(dispatch.columns))
) as ahead on true
left join lateral (
    select dispatch.id as dispatch_id, dispatch.created_at from autofill.dispatch
    where definition.mode <> 'on_change' and dispatch.collection_id = collection.id
      and definition.column_id = any(dispatch.columns) and dispatch.ended_at is not null
      and dispatch.canceled_at is null and (definition.mode <> 'cron' or dispatch.forced is not null)
    order by dispatch.id desc
    limit 1
) as refreshed on true
where collection.id = %(collection_id)s;
