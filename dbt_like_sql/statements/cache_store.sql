-- Calls of cached columns have ended: what answered is kept, also a loser's answer (it was paid for), errors never; and
-- each is no longer the owner of its key, whatever came of it. In the flush's own transaction, last in it: keys come after
-- rows, work and cells in the order of locks, the entries before their owners, each by key. An answer whose call began
-- before that of the one that is there leaves it alone.
with ended as materialized (
    select e.*, collection.namespace_id from unnest(
        %(collections)s::int[], %(rows)s::bigint[], %(claims)s::bigint[], %(columns)s::smallint[],
        %(fingerprints)s::bytea[], %(answered)s::boolean[], %(values)s::jsonb[], %(signals)s::bigint[],
        %(models)s::text[], %(tokens_in)s::bigint[], %(tokens_out)s::bigint[], %(costs)s::bigint[], %(details)s::jsonb[]
    ) as e (collection_id, row_id, claim, column_id, fingerprint, answered, value, signal, model, tokens_in, tokens_out,
        cost, details)
    join autofill.collection on collection.id = e.collection_id
),
kept as (
    insert into autofill.cache as cache (namespace_id, fingerprint, value, signal, model, tokens_in, tokens_out, cost,
        details)
    select distinct on (namespace_id, fingerprint) namespace_id, fingerprint, value, signal, model, tokens_in,
        tokens_out, cost, details
    from ended where answered
    order by namespace_id, fingerprint, signal desc
    on conflict (namespace_id, fingerprint) do update set
        value = excluded.value, signal = excluded.signal, model = excluded.model, tokens_in = excluded.tokens_in,
        tokens_out = excluded.tokens_out, cost = excluded.cost, details = excluded.details,
        computed_at = excluded.computed_at
    where excluded.signal >= cache.signal
    returning namespace_id
),
owned as materialized (
    select owner.place from (
        select * from ended
        where (select count(*) from kept) is not null  -- when all entries are written
        order by namespace_id, fingerprint
        offset 0
    ) as ended
    cross join lateral (
        select ctid as place from autofill.cache_owner as owner
        where owner.namespace_id = ended.namespace_id and owner.fingerprint = ended.fingerprint
          and (owner.worker_id, owner.claim, owner.collection_id, owner.row_id, owner.column_id)
            = (%(worker_id)s, ended.claim, ended.collection_id, ended.row_id, ended.column_id)
        for update
    ) as owner
)
delete from autofill.cache_owner where ctid = any(array(select place from owned));
