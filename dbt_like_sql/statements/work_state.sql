-- Dead tuples of `work` as far as the statistics know (they lag by a second), and what the planner takes it for: -1 is
-- "unknown", which it handles well. Who claims and who stores report apart, so that the live ones of the statistics are any
-- number from none to all of a second's: `work_live` counts them.
select counted.n_dead_tup as dead, class.reltuples::bigint as taken_for
from pg_stat_user_tables as counted join pg_class as class on class.oid = counted.relid
where counted.relid = 'autofill.work'::regclass;
