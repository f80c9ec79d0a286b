-- Completions behind a cursor, in an order in which none comes late: by transaction, and only of those before the oldest
-- one still running. By id alone, rows that commit late are lost.
select xid::text, id, dispatch_id, collection_id, batch_id, column_id, outcome, row_ids, completed_at
from autofill.completion
where (xid, id) > (%(xid)s::xid8, %(id)s) and xid < pg_snapshot_xmin(pg_current_snapshot())
order by xid, id
limit %(limit)s;
