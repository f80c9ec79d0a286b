-- What waits in the collections where adding it up at each dispatch would take long, or of which much is done already.
with counted as (
    select collection_id, max(id) as through, sum(greatest(1, dispatch.backlog - done.cells))::bigint as cells
    from autofill.dispatch
    cross join lateral (
        select coalesce(sum(cardinality(row_ids)), 0) as cells from autofill.completion
        where dispatch.backlog >= %(large)s and completion.dispatch_id = dispatch.id
    ) as done
    where ended_at is null
    group by collection_id
    having count(*) >= %(many)s or max(dispatch.backlog) >= %(large)s
),
forgotten as (
    delete from autofill.backlog where not exists (
        select from counted where counted.collection_id = backlog.collection_id)
)
insert into autofill.backlog (collection_id, cells, through) select collection_id, cells, through from counted
on conflict (collection_id) do update set cells = excluded.cells, through = excluded.through;
