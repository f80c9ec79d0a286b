-- The worker may still claim, and no janitor ends it while this transaction takes rows. The settings are those of
-- `claim_lock`: a round trip for them alone would cost as much as this one.
select id,
    set_config('synchronous_commit', 'off', true) as durability,
    set_config('idle_in_transaction_session_timeout', '2s', true) as patience,
    set_config('plan_cache_mode', 'force_generic_plan', true) as planning
from autofill.worker where id = %(worker_id)s and ended_at is null for share;
