-- One at a time of a collection's syncs: taken before every other lock, until the transaction ends.
select pg_advisory_xact_lock(hashtextextended('autofill.sync ' || %(collection_id)s::int, 0));
