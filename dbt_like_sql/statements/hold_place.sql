-- Hold a lane (or one of its columns), once: whoever meets the same while it is held adds nothing. A probe that has failed
-- (`probed`) puts the next one off, twice as long each time, up to an hour; never sooner than the provider said.
insert into autofill.hold as hold (namespace_id, collection_id, job_type, column_id, reason, message, probe_at)
select namespace_id, id, %(job_type)s, %(column_id)s::smallint, %(reason)s, %(message)s,
    clock_timestamp() + coalesce(%(retry_after)s::float8, 60) * interval '1 second'
from autofill.collection where id = %(collection_id)s
on conflict (namespace_id, collection_id, job_type, column_id) where lifted_at is null do update
set probes = hold.probes + 1, message = excluded.message, reason = excluded.reason, probing_by = null,
    probing_until = null,
    probe_at = clock_timestamp()
        + coalesce(%(retry_after)s::float8, least(3600, 60 * 2 ^ least(hold.probes + 1, 10))) * interval '1 second'
where hold.id = %(probed)s::bigint
returning id, probes = 0 as is_new;
