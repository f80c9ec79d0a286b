-- A worker that has handed everything back ends; its slots go with it. Where something is left in flight they stay, and
-- show the janitor the way to it.
with gone as (
    update autofill.worker set ended_at = clock_timestamp()
    where id = %(worker_id)s and ended_at is null
    returning id
)
delete from autofill.slot using gone
where slot.worker_id = gone.id
  and not exists (select from autofill.work
                  where work.worker_id = slot.worker_id and work.collection_id = slot.collection_id);
