-- Delayed work that has come due joins the queue. It sits outside the claim's index until then.
with due as materialized (
    select collection_id, row_id from autofill.work
    where state = 'delayed' and available_at <= clock_timestamp()
    order by available_at
    limit %(limit)s
    for update skip locked
)
update autofill.work set state = 'queued', available_at = null, queued_at = available_at, deferred = false
from due
where work.collection_id = due.collection_id and work.row_id = due.row_id;
