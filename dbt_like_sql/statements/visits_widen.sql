-- Visits that were given one more slot. One that has ended, or that somebody holds,
-- gives it back (by slot_return).
with wanted as (
    select * from unnest(%(collections)s::int[], %(rows)s::bigint[], %(claims)s::bigint[])
        as w (collection_id, row_id, claim)
),
locked as materialized (
    select work.collection_id, work.row_id, work.claim from autofill.work
    join wanted using (collection_id, row_id, claim)
    where work.worker_id = %(worker_id)s
    order by work.collection_id, work.row_id
    for update of work skip locked
)
update autofill.work set slots = slots + 1 from locked
where work.collection_id = locked.collection_id and work.row_id = locked.row_id
returning work.collection_id, work.row_id, work.claim;
