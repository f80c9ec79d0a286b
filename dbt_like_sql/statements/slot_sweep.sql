-- Slots of workers that have ended and have nothing in flight any more.
delete from autofill.slot using autofill.worker
where worker.id = slot.worker_id and worker.ended_at is not null
  and not exists (select from autofill.work
                  where work.worker_id = slot.worker_id and work.collection_id = slot.collection_id);
