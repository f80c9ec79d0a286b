-- A worker starts: a fresh id, so that a reused name never hides orphans.
insert into autofill.worker (id, host, pid, job_types, lease)
values (%(worker_id)s, %(host)s, %(pid)s, %(job_types)s, %(lease)s * interval '1 second');
