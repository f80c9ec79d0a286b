-- The claim lock: outermost, and a statement of its own, so that the next one counts what the last holder committed.
select pg_advisory_xact_lock(hashtext('autofill.claim'));
