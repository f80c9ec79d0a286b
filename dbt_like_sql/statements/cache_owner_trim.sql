-- Owners that never said how their call ended, and whose key nobody has asked for since. Reads all owners, which are no
-- more than there are calls in flight.
with gone as materialized (
    select ctid from autofill.cache_owner
    where greatest(taken_at, pg_postmaster_start_time()) + lease < statement_timestamp() - interval '1 hour'
    limit %(limit)s
    for update skip locked
)
delete from autofill.cache_owner where ctid = any(array(select ctid from gone));
