-- A claim whose answer never reached its worker: nobody has visited these rows, and nobody else would give them back.
-- Whether they wait, work_park says, which comes after: this one's snapshot may be older than a pause or a resume.
with lost as materialized (
    select collection_id, row_id from autofill.work
    where worker_id = %(worker_id)s and claim = %(claim)s and state = 'computing'
    order by collection_id, row_id
    for update
)
update autofill.work set
    state = 'queued', worker_id = null, claim = null, dirty = false, computing = null, slots = 1
from lost
where work.collection_id = lost.collection_id and work.row_id = lost.row_id
returning work.collection_id, work.row_id;
