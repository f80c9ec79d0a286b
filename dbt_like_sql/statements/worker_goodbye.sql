-- A worker that has handed everything back ends; its slots go with it.
with gone as (
    update autofill.worker set ended_at = clock_timestamp()
    where id = %(worker_id)s and ended_at is null
    returning id
)
delete from autofill.slot using gone where slot.worker_id = gone.id;
