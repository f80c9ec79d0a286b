-- The janitor alone vacuums `work`. Autovacuum comes once a minute, by when a busy queue has 100 MB of dead tuples, or
-- between two sweeps, when it is empty: the planner then takes it for empty until the next time, and reads all of it for
-- each row of a batch (150 ms instead of 2 for a release of 500).
alter table autofill.work set (autovacuum_enabled = off);
alter table autofill.work reset (autovacuum_vacuum_threshold, autovacuum_vacuum_scale_factor);
