-- Rows that are locked are back. What has been undone meanwhile, by a snapshot that has them again, stays as it is.
with forgotten as (
    delete from autofill.sync_deleted
    where collection_id = %(collection_id)s
      and row_id = any(array(select unnest(%(rows)s::bigint[])))
)
update autofill.row set deleted_at = null, change = nextval('autofill.signal')
where collection_id = %(collection_id)s and row_id = any(array(select unnest(%(rows)s::bigint[])))
  and deleted_at is not null;
