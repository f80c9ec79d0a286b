-- Take a canceled dispatch's explicit demand from rows that are locked, as is their work. Cascade demand stays: inputs
-- did move. Work that nothing else wants is dropped; a visit in flight learns of it, and what it has in flight lands.
-- Whether the rows wait is judged anew after this, by work_park.
-- (any(array(select unnest(…))): of a list whose length it knows the planner would rather filter the whole collection.)
with canceled as (
    select work.collection_id, work.row_id, work.state, work.cascade, work.dispatch_id, row.batch_id, asked.columns,
        work.demand - asked.columns as demand
    from autofill.work
    join autofill.row on row.collection_id = work.collection_id and row.row_id = work.row_id
    cross join lateral (
        select coalesce(array_agg(key), '{}') as columns from jsonb_each(work.demand)
        where (value ->> 2)::bigint = %(dispatch_id)s
    ) as asked
    where work.collection_id = %(collection_id)s and work.row_id = any(array(select unnest(%(rows)s::bigint[])))
),
marked as (
    insert into autofill.cell as cell (collection_id, row_id, column_id, canceled)
    select canceled.collection_id, canceled.row_id, column_id::smallint, dispatch.signal
    from canceled cross join unnest(canceled.columns) as column_id
    join autofill.dispatch on dispatch.id = %(dispatch_id)s
    on conflict (collection_id, row_id, column_id) do update set
        canceled = greatest(cell.canceled, excluded.canceled)
),
credited as (
    insert into autofill.completion (dispatch_id, collection_id, batch_id, column_id, outcome, row_ids)
    select %(dispatch_id)s, collection_id, batch_id, column_id::smallint, 'canceled', array_agg(row_id)
    from canceled cross join unnest(canceled.columns) as column_id
    group by 2, 3, 4
),
dropped as (
    delete from autofill.work using canceled
    where work.collection_id = canceled.collection_id and work.row_id = canceled.row_id
      and canceled.state <> 'computing' and canceled.demand = '{}' and not canceled.cascade
),
left_over as (
    update autofill.work set
        demand = canceled.demand,
        raised = work.raised + 1,
        dirty = work.state = 'computing',
        dispatch_id = coalesce(
            (select max((value ->> 2)::bigint) from jsonb_each(canceled.demand)), work.dispatch_id)
    from canceled
    where work.collection_id = canceled.collection_id and work.row_id = canceled.row_id
      and cardinality(canceled.columns) > 0
      and (canceled.state = 'computing' or canceled.demand <> '{}' or canceled.cascade)
)
-- whose end this may have been, beside the canceled one's: to be looked at when the transaction has committed
select distinct dispatch_id from canceled;
