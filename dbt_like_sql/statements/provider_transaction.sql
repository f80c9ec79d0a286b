-- For the transaction of a lease, which every worker makes once a second: it commits asynchronously, so that its locks are
-- short (what a crash of the server loses, the workers' next reports say again), and waits no longer than it is worth.
select set_config('synchronous_commit', 'off', true) as durability,
    set_config('lock_timeout', '1s', true) as patience,
    set_config('idle_in_transaction_session_timeout', '2s', true) as limit_of_a_frozen_one;
