-- Dead tuples of `work`, as far as the statistics know (they lag by a second).
select n_dead_tup as tuples from pg_stat_user_tables where relid = 'autofill.work'::regclass;
