-- Cursors move in the transaction that took their rows: what they passed but could not have becomes a hole, holes that
-- were taken go, and a sweep closes only at its end and without holes (else an open edit costs it its row).
with walked as materialized (
    select sweep_id, cursor, taken::bigint[] as taken, missed::bigint[] as missed
    from unnest(%(sweeps)s::bigint[], %(cursors)s::bigint[], %(taken)s::text[], %(missed)s::text[])
        as w (sweep_id, cursor, taken, missed)
),
filled as (
    delete from autofill.sweep_hole using walked
    where sweep_hole.sweep_id = walked.sweep_id and sweep_hole.row_id = any(walked.taken)
),
held as (
    insert into autofill.sweep_hole (sweep_id, row_id)
    select sweep_id, row_id from walked cross join unnest(missed) as row_id
    on conflict do nothing
)
update autofill.sweep
set cursor = walked.cursor,
    closed_at = case
        when walked.cursor >= last_row and cardinality(walked.missed) = 0
             and not exists (select from autofill.sweep_hole
                             where sweep_hole.sweep_id = sweep.id and not row_id = any(walked.taken))
        then clock_timestamp() end
from walked
where sweep.id = walked.sweep_id
returning sweep.dispatch_id, closed_at is not null as closed;
