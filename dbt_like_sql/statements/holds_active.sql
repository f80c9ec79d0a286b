-- What is held now, as people see it: the oldest first.
select id, namespace, collection, job_type, column_name, reason, message, placed_at, expires_at, probe_at, collection_id
from autofill.held order by placed_at, id;
