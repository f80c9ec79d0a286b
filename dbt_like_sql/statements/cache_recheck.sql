-- Of the keys that cache_ask has just given out, those whose answer came in between: given back, for there is no call to
-- make. A statement of its own, whose snapshot holds whatever ended before the keys could be taken.
with taken as materialized (
    select t.*, collection.namespace_id from unnest(
        %(collections)s::int[], %(rows)s::bigint[], %(claims)s::bigint[], %(columns)s::smallint[],
        %(fingerprints)s::bytea[], %(forced)s::bigint[], %(ttls)s::float8[]
    ) with ordinality as t (collection_id, row_id, claim, column_id, fingerprint, forced, ttl, number)
    join autofill.collection on collection.id = t.collection_id
),
found as materialized (
    select taken.*, entry.signal, entry.value, entry.model, entry.tokens_in, entry.tokens_out, entry.cost, entry.details
    from taken cross join lateral (
        select * from autofill.cache
        where cache.namespace_id = taken.namespace_id and cache.fingerprint = taken.fingerprint
          and cache.signal >= taken.forced
          and (ttl is null or cache.computed_at > clock_timestamp() - ttl * interval '1 second')
        offset 0
    ) as entry
),
given_back as (
    -- ours, and locked since: nobody waits for what this waits for
    delete from autofill.cache_owner where ctid = any(array(
        select owner.ctid from found cross join lateral (
            select ctid from autofill.cache_owner as owner
            where owner.namespace_id = found.namespace_id and owner.fingerprint = found.fingerprint
            offset 0
        ) as owner
    ))
)
select number, signal, value, model, tokens_in, tokens_out, cost, details from found;
