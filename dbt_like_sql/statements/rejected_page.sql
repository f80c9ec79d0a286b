-- Rejected lines in the order they came, those of one batch or of all.
select rejected.id, coalesce(rejected.source, batch.source, sync.source) as source, batch.key as batch, rejected.sync,
    line, reason, raw, fields, repaired_at
from autofill.rejected
left join autofill.batch on batch.collection_id = rejected.collection_id and batch.id = rejected.batch_id
left join autofill.sync on sync.collection_id = rejected.collection_id and sync.number = rejected.sync
where rejected.collection_id = %(collection_id)s and rejected.id > %(after)s
  and (%(batch)s::text is null or batch.key = %(batch)s)
  and (%(repaired)s or repaired_at is null)
order by rejected.id
limit %(limit)s;
