-- The latest sync that has deleted rows which are not restored yet.
select max(sync) as number from autofill.sync_deleted where collection_id = %(collection_id)s;
