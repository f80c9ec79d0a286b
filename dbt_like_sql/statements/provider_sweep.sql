-- Leases that have run out, or whose worker has ended: nobody counts them any more.
delete from autofill.provider_lease as lease using autofill.worker
where worker.id = lease.worker_id and (worker.ended_at is not null or expires_at < clock_timestamp());
