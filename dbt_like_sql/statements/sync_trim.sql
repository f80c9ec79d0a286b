-- Some syncs of long ago, with what they had rejected. A collection's latest stays, which the next one counts from, and so
-- does one whose deleted rows can still be restored by its number.
with old as materialized (
    select collection_id, number from autofill.sync
    where started_at < statement_timestamp() - %(days)s * interval '1 day'
      and number < (select max(number) from autofill.sync as latest where latest.collection_id = sync.collection_id)
      and not exists (select from autofill.sync_deleted
                      where sync_deleted.collection_id = sync.collection_id and sync_deleted.sync = sync.number)
    limit %(limit)s
    for update skip locked
),
trimmed as (
    delete from autofill.sync using old
    where sync.collection_id = old.collection_id and sync.number = old.number
    returning 1
)
select count(*) as tuples from trimmed;
