-- For this transaction: room to sort and hash in, and no loops, for a snapshot that has just come is taken to be empty.
select set_config('work_mem', '64MB', true) as memory, set_config('enable_nestloop', 'off', true) as loops;
