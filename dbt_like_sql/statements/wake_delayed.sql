-- Delayed work that has come due joins the queue. It sits outside the claim's index until then.
-- (statement_timestamp: against clock_timestamp, which is volatile, the index cannot stop at what is not due yet.)
with due as materialized (
    select collection_id, row_id from autofill.work
    where state = 'delayed' and available_at <= statement_timestamp()
    order by available_at
    limit %(limit)s
    for update skip locked
)
update autofill.work set state = 'queued', available_at = null, queued_at = available_at, deferred = false
from unnest(array(select collection_id from due), array(select row_id from due)) as woken (collection_id, row_id)
where work.collection_id = woken.collection_id and work.row_id = woken.row_id;
