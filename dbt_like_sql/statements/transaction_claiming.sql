-- For the transactions of a claim: a lost one is only made again, and a claimer that freezes in the middle of one is
-- thrown out before it stalls the others. Its plans are made once: left to itself, the server plans `claim_lanes` anew each
-- time, which takes longer (1.3 ms) than to run it.
select set_config('synchronous_commit', 'off', true) as durability,
    set_config('idle_in_transaction_session_timeout', '2s', true) as patience,
    set_config('plan_cache_mode', 'force_generic_plan', true) as planning;
