-- For the transactions of a claim: a lost one is only made again, and a claimer that freezes in the middle of one is
-- thrown out before it stalls the others.
select set_config('synchronous_commit', 'off', true) as durability,
    set_config('idle_in_transaction_session_timeout', '2s', true) as patience;
