with resumed as (
    update autofill.dispatch set paused_at = null, unsettled_at = clock_timestamp()
    where id = %(dispatch_id)s and ended_at is null and paused_at is not null
    returning id, unsettled_at
),
going as (
    update autofill.sweep set paused = false from resumed
    where sweep.dispatch_id = resumed.id and sweep.closed_at is null
)
select id, unsettled_at from resumed;
