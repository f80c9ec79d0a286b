-- Nobody stores anything under the version that is about to be replaced; after the collection's lock.
select pg_advisory_xact_lock(hashtextextended('autofill.version ' || %(collection_id)s::int, 0));
