-- Its sweeps are walked no further, and its queued rows wait. Calls in flight run to their end. `reason` says why it was
-- paused by itself, null for a person.
with paused as (
    update autofill.dispatch
    set paused_at = clock_timestamp(), unsettled_at = clock_timestamp(), pause_reason = %(reason)s
    where id = %(dispatch_id)s and ended_at is null and canceled_at is null and paused_at is null
    returning id, unsettled_at
),
stopped as (
    update autofill.sweep set paused = true from paused
    where sweep.dispatch_id = paused.id and sweep.closed_at is null
)
select id, unsettled_at from paused;
