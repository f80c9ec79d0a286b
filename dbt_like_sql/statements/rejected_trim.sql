-- Some rejected lines of long ago: since they came, or were repaired. How many there were stays with the batch.
with old as materialized (
    select rejected.id from autofill.rejected
    left join autofill.batch on batch.collection_id = rejected.collection_id and batch.id = rejected.batch_id
    left join autofill.sync on sync.collection_id = rejected.collection_id and sync.number = rejected.sync
    where coalesce(repaired_at, batch.loaded_at, sync.started_at)
        < statement_timestamp() - %(days)s * interval '1 day'
    limit %(limit)s
    for update of rejected skip locked
),
trimmed as (
    delete from autofill.rejected where id = any(array(select id from old))
    returning 1
)
select count(*) as tuples from trimmed;
