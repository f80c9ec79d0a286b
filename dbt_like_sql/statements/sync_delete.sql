-- Rows that are locked go, softly: what of them is in flight is dropped and counted when it comes.
with gone as (
    update autofill.row set deleted_at = clock_timestamp()
    where collection_id = %(collection_id)s and row_id = any(array(select unnest(%(rows)s::bigint[])))
      and deleted_at is null
    returning row_id
)
insert into autofill.sync_deleted (collection_id, sync, row_id)
select %(collection_id)s, %(sync)s, row_id from gone
on conflict (collection_id, row_id) do update set sync = excluded.sync;
