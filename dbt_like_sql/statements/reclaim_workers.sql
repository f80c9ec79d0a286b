-- Workers whose lease has run out, by the database's clock. A server that was down could not be told of a beat, so the
-- lease counts from its start at the earliest: an outage bills nothing twice.
update autofill.worker set ended_at = clock_timestamp()
where id in (
    select id from autofill.worker
    where ended_at is null
      and greatest(beat_at, pg_postmaster_start_time()) + lease < clock_timestamp()
    order by id
    for update skip locked
)
returning id;
