-- The claim lock: outermost, and a statement of its own, so that the next one counts what the last holder committed. With it
-- what is so in all of a claim (`worker_hold`, too): a lost one is only made again; a claimer that freezes in the middle of
-- it is thrown out before it stalls the others; and plans are made once, for left to itself the server plans `claim_lanes`
-- anew each time, which takes longer (1.3 ms) than to run it.
select pg_advisory_xact_lock(hashtext('autofill.claim')),
    set_config('synchronous_commit', 'off', true) as durability,
    set_config('idle_in_transaction_session_timeout', '2s', true) as patience,
    set_config('plan_cache_mode', 'force_generic_plan', true) as planning;
