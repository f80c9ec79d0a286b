-- A claim whose answer never reached its worker: nobody has visited these rows, and nobody else would give them back.
with lost as materialized (
    select collection_id, row_id from autofill.work
    where worker_id = %(worker_id)s and claim = %(claim)s and state = 'computing'
    order by collection_id, row_id
    for update
)
update autofill.work set
    state = case when work.owners is null and exists (
        select from autofill.dispatch where dispatch.id = work.dispatch_id and paused_at is not null
    ) then 'parked' else 'queued' end::autofill.work_state,
    worker_id = null, claim = null, dirty = false, computing = null, slots = 1
from lost
where work.collection_id = lost.collection_id and work.row_id = lost.row_id;
