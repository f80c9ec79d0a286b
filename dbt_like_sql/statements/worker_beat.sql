-- One heartbeat, by the database's clock. No row back: the worker was reclaimed and may claim no more.
update autofill.worker set beat_at = clock_timestamp()
where id = %(worker_id)s and ended_at is null
returning id;
