-- The worker may still claim, and no janitor ends it while this transaction takes rows.
select id from autofill.worker where id = %(worker_id)s and ended_at is null for share;
