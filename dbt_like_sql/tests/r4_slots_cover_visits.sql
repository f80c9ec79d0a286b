-- R4: a worker never has more visits in flight than slots it was given under the claim lock.
select work.worker_id, work.collection_id, sum(work.slots) as used, max(slot.held) as held
from {{ source('autofill', 'work') }}
left join {{ source('autofill', 'slot') }}
    on slot.worker_id = work.worker_id and slot.collection_id = work.collection_id
where work.state = 'computing'
group by work.worker_id, work.collection_id
having sum(work.slots) > coalesce(max(slot.held), 0)
