-- What was held until a time that has passed.
update autofill.hold set lifted_at = clock_timestamp(), lifted_by = 'time'
where lifted_at is null and expires_at <= clock_timestamp();
