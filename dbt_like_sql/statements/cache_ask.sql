-- For each cell that is due: the answer that is there, or whose call it is. In one statement for all that ask at once;
-- of those that ask for the same, one gets the call. Keys are taken in their order, so that no two batches can deadlock;
-- where the answer's transaction is just ending, this waits for it (and cache_recheck then sees what it has stored).
-- An entry counts if it is within the asking column's time to live, and not older than the demand by force. An owner
-- counts while its visit goes on and its lease is not over (from the server's start at the earliest: an outage bills
-- nothing twice), and not for a force that came after it took the key. Who asks again, for an answer that got lost, is told
-- what it was told.
with asked as materialized (
    select a.*, collection.namespace_id from unnest(
        %(collections)s::int[], %(rows)s::bigint[], %(claims)s::bigint[], %(columns)s::smallint[],
        %(fingerprints)s::bytea[], %(forced)s::bigint[], %(ttls)s::float8[], %(leases)s::float8[]
    ) with ordinality as a (collection_id, row_id, claim, column_id, fingerprint, forced, ttl, lease, number)
    join autofill.collection on collection.id = a.collection_id
),
seen as materialized (
    select asked.*, entry.computed_at is not null as hit, entry.signal as entry_signal, entry.value, entry.model,
        entry.tokens_in, entry.tokens_out, entry.cost, entry.details,
        entry.computed_at is null and coalesce(owner.is_free, true) as is_free
    from asked
    left join lateral (
        select * from autofill.cache
        where cache.namespace_id = asked.namespace_id and cache.fingerprint = asked.fingerprint
          and cache.signal >= asked.forced
          and (ttl is null or cache.computed_at > clock_timestamp() - ttl * interval '1 second')
        offset 0
    ) as entry on true
    left join lateral (
        select owner.signal < asked.forced
            or greatest(owner.taken_at, pg_postmaster_start_time()) + owner.lease < clock_timestamp()
            or not exists (
                select from autofill.work
                where work.collection_id = owner.collection_id and work.row_id = owner.row_id
                  and work.worker_id = owner.worker_id and work.claim = owner.claim)
            or (owner.worker_id, owner.claim, owner.collection_id, owner.row_id, owner.column_id)
                = (%(worker_id)s, asked.claim, asked.collection_id, asked.row_id, asked.column_id) as is_free
        from autofill.cache_owner as owner
        where owner.namespace_id = asked.namespace_id and owner.fingerprint = asked.fingerprint
        offset 0
    ) as owner on entry.computed_at is null
),
owned as (
    insert into autofill.cache_owner as owner (namespace_id, fingerprint, worker_id, claim, collection_id, row_id,
        column_id, signal, forced, taken_at, lease)
    select distinct on (namespace_id, fingerprint) namespace_id, fingerprint, %(worker_id)s::uuid, claim, collection_id,
        row_id, column_id, given.signal, forced, clock_timestamp(), lease * interval '1 second'
    from seen cross join (select last_value as signal from autofill.signal) as given
    where is_free
    order by namespace_id, fingerprint, forced desc, number
    on conflict (namespace_id, fingerprint) do update set
        worker_id = excluded.worker_id, claim = excluded.claim, collection_id = excluded.collection_id,
        row_id = excluded.row_id, column_id = excluded.column_id, signal = excluded.signal, forced = excluded.forced,
        taken_at = excluded.taken_at, lease = excluded.lease
    -- again: another batch may have taken it since this statement's snapshot
    where owner.signal < excluded.forced
        or greatest(owner.taken_at, pg_postmaster_start_time()) + owner.lease < clock_timestamp()
        or not exists (
            select from autofill.work
            where work.collection_id = owner.collection_id and work.row_id = owner.row_id
              and work.worker_id = owner.worker_id and work.claim = owner.claim)
        or (owner.worker_id, owner.claim, owner.collection_id, owner.row_id, owner.column_id)
            = (excluded.worker_id, excluded.claim, excluded.collection_id, excluded.row_id, excluded.column_id)
    returning collection_id, row_id, column_id, signal
)
select case when seen.hit then 'hit' when owned.signal is not null then 'owner' else 'wait' end as told,
    coalesce(owned.signal, seen.entry_signal) as signal, seen.value, seen.model, seen.tokens_in, seen.tokens_out,
    seen.cost, seen.details
from seen left join owned using (collection_id, row_id, column_id)
order by number;
