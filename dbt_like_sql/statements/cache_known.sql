-- Which of these fingerprints the cache has an answer for, that is not older than asked.
select asked.fingerprint
from unnest(%(fingerprints)s::bytea[], %(ttls)s::float8[]) as asked (fingerprint, ttl)
cross join lateral (
    select computed_at from autofill.cache
    where cache.namespace_id = %(namespace_id)s and cache.fingerprint = asked.fingerprint
    offset 0
) as entry
where ttl is null or entry.computed_at > clock_timestamp() - ttl * interval '1 second';
