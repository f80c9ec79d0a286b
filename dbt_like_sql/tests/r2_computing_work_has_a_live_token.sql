-- R2, R6: work in flight belongs to a worker that is registered; the slots of one that has ended show the way to it.
select work.collection_id, work.row_id, work.worker_id
from {{ source('autofill', 'work') }}
left join {{ source('autofill', 'worker') }} on worker.id = work.worker_id
left join {{ source('autofill', 'slot') }}
    on slot.worker_id = work.worker_id and slot.collection_id = work.collection_id
where work.state = 'computing' and (worker.id is null or slot.held is null)
