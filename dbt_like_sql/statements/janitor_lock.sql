-- One janitor at a time gives work back; another one has nothing to wait for.
select pg_try_advisory_xact_lock(hashtext('autofill.janitor')) as mine;
