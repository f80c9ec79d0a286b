-- Show which columns are being called, for visits long enough to be seen. Display only: asynchronous, never waits.
with seen as (
    select * from unnest(%(collections)s::int[], %(rows)s::bigint[], %(claims)s::bigint[], %(columns)s::text[])
        as s (collection_id, row_id, claim, columns)
),
locked as materialized (
    select work.collection_id, work.row_id, seen.columns from autofill.work
    join seen using (collection_id, row_id, claim)
    where work.worker_id = %(worker_id)s
    order by work.collection_id, work.row_id
    for update of work skip locked
)
update autofill.work set computing = locked.columns::smallint[] from locked
where work.collection_id = locked.collection_id and work.row_id = locked.row_id;
