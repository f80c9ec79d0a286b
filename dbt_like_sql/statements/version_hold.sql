-- The collection's current version stays until this transaction ends: what is checked against it is stored under it.
-- Not a lock of the collection's tuple: a share of that by every edit would make sweeps and loads wait, and write.
-- Taken before any row's lock, but after a load's own rows, which nobody else knows.
select pg_advisory_xact_lock_shared(hashtextextended('autofill.version ' || %(collection_id)s::int, 0));
