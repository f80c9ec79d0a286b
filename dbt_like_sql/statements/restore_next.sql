-- The next rows that a sync has deleted.
select row_id from autofill.sync_deleted
where collection_id = %(collection_id)s and sync = %(sync)s
order by row_id
limit %(limit)s;
