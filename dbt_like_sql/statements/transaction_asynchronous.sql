-- For what is only done again where a crash has lost it.
select set_config('synchronous_commit', 'off', true) as durability;
