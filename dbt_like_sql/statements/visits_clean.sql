-- The hints of visits that are locked and about to be read.
update autofill.work set dirty = false
from unnest(%(collections)s::int[], %(rows)s::bigint[]) as held (collection_id, row_id)
where work.collection_id = held.collection_id and work.row_id = held.row_id;
