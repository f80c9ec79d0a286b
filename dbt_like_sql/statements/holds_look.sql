-- What is held now, for a worker; where a probe has come due it takes it, alone: `is_probe` says that one call of it is
-- this worker's to make, until `probing_until`.
with probing as (
    update autofill.hold set probing_by = %(worker_id)s, probing_until = clock_timestamp() + interval '60 seconds'
    where lifted_at is null and probe_at <= clock_timestamp() and job_type = any(%(job_types)s)
      and (probing_until is null or probing_until < clock_timestamp())
    returning id
)
select hold.id, namespace.name as namespace, hold.collection_id, hold.job_type, hold.column_id,
    hold.id in (select id from probing) as is_probe
from autofill.hold join autofill.namespace on namespace.id = hold.namespace_id
where lifted_at is null and (expires_at is null or expires_at > clock_timestamp())
order by hold.id;
