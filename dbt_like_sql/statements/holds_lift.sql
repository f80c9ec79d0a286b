-- Calls are made again.
update autofill.hold set lifted_at = clock_timestamp(), lifted_by = %(actor)s
where id = any(%(holds)s) and lifted_at is null
returning id, job_type;
