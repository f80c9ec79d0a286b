-- The work met by sweeps: state, or null where somebody else holds the tuple. Nothing waits.
-- (Probed by key, whatever the statistics say.)
with swept as (
    select * from unnest(%(collections)s::int[], %(rows)s::bigint[]) as s (collection_id, row_id)
    order by collection_id, row_id
)
select met.collection_id, met.row_id, held.state
from swept
cross join lateral (
    select collection_id, row_id from autofill.work
    where work.collection_id = swept.collection_id and work.row_id = swept.row_id
    offset 0
) as met
left join lateral (
    select state from autofill.work
    where work.collection_id = met.collection_id and work.row_id = met.row_id
    for update skip locked
) as held on true;
