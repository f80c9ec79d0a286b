-- One at a time; another one has nothing to wait for. The lock is its transaction's, so it works through pgbouncer.
select pg_try_advisory_xact_lock(hashtext(%(name)s)) as alone;
