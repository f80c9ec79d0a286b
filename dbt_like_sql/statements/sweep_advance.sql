-- The cursor moves in the transaction that took its rows: what it passed but could not have becomes a hole, holes that
-- were taken go, and it closes only at its end and without holes (else an open edit costs the sweep its row).
with filled as (
    delete from autofill.sweep_hole
    where sweep_id = %(sweep_id)s and row_id = any(%(taken)s)
),
held as (
    insert into autofill.sweep_hole (sweep_id, row_id)
    select %(sweep_id)s, row_id from unnest(%(missed)s::bigint[]) as row_id
    on conflict do nothing
)
update autofill.sweep
set cursor = %(cursor)s,
    closed_at = case
        when %(cursor)s >= last_row and cardinality(%(missed)s::bigint[]) = 0
             and not exists (select from autofill.sweep_hole
                             where sweep_id = %(sweep_id)s and not row_id = any(%(taken)s))
        then clock_timestamp() end
where id = %(sweep_id)s
returning dispatch_id, closed_at is not null as closed;
