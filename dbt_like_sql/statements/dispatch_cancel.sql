-- No new work from this dispatch: its sweeps close where they are. What rows hold of it follows, in batches.
with canceled as (
    update autofill.dispatch set canceled_at = clock_timestamp(), paused_at = null
    where id = %(dispatch_id)s and ended_at is null and canceled_at is null
    returning id
),
closed as (
    update autofill.sweep set closed_at = clock_timestamp(), canceled = true, paused = false
    from canceled
    where sweep.dispatch_id = canceled.id and sweep.closed_at is null
)
select id from canceled;
