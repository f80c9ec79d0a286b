-- Take a pass of the collection and one of its namespace, if there are, and say how much waits. Nothing waits here.
with asked as materialized (
    select collection.id, collection.namespace_id, namespace.name as namespace, collection.name,
        collection.dispatches, namespace.dispatches as namespace_dispatches, collection.backlog
    from autofill.collection join autofill.namespace on namespace.id = collection.namespace_id
    where collection.id = %(collection_id)s
),
wanted as materialized (
    select namespace_id, id as collection_id, dispatches from asked where dispatches is not null
    union all
    select namespace_id, 0, namespace_dispatches from asked where namespace_dispatches is not null
),
chosen as materialized (
    select free.* from wanted cross join lateral (
        select namespace_id, collection_id, number from autofill.pass
        where pass.namespace_id = wanted.namespace_id and pass.collection_id = wanted.collection_id
          and number <= wanted.dispatches and used_at <= clock_timestamp() - interval '1 second'
        order by number
        limit 1
        for update skip locked
    ) as free
),
taken as (
    update autofill.pass set used_at = clock_timestamp() from chosen
    where pass.namespace_id = chosen.namespace_id and pass.collection_id = chosen.collection_id
      and pass.number = chosen.number
    returning pass.collection_id
)
select asked.*,
    dispatches is null or exists (select from taken where collection_id <> 0) as has_pass,
    namespace_dispatches is null or exists (select from taken where collection_id = 0) as has_namespace_pass,
    -- until the next pass is free, of the one that is not to be had
    (
        select extract(epoch from max(free_at) - clock_timestamp())::float8 from (
            select min(used_at) + interval '1 second' as free_at
            from wanted join autofill.pass using (namespace_id, collection_id)
            where number <= wanted.dispatches and collection_id not in (select collection_id from taken)
            group by collection_id
        ) as busy
    ) as seconds,
    coalesce(known.cells, 0) + (
        select coalesce(sum(dispatch.backlog), 0) from autofill.dispatch
        where dispatch.collection_id = asked.id and ended_at is null and dispatch.id > coalesce(known.through, 0)
    ) as waiting
from asked left join autofill.backlog as known on known.collection_id = asked.id;
