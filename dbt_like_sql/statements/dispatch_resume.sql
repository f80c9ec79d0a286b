-- Not while its cap is reached: it would be paused again by the first answer, with as much in flight as before.
with resumed as (
    update autofill.dispatch set paused_at = null, unsettled_at = clock_timestamp(), pause_reason = null
    where id = %(dispatch_id)s and ended_at is null and paused_at is not null
      and (max_cost is null or max_cost > spent + (
          select coalesce(sum(cost), 0) from autofill.usage_delta where usage_delta.dispatch_id = dispatch.id))
    returning id, unsettled_at
),
going as (
    update autofill.sweep set paused = false from resumed
    where sweep.dispatch_id = resumed.id and sweep.closed_at is null
)
select id, unsettled_at from resumed;
