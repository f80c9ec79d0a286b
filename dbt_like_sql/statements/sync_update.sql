-- What the snapshot says of rows that are locked; a deleted one is back with it. The change number is taken here, under
-- the rows' locks. Only the loaded side: a person's value stays, and is what is shown.
with forgotten as (
    delete from autofill.sync_deleted
    where collection_id = %(collection_id)s and row_id = any(array(select unnest(%(rows)s::bigint[])))
)
update autofill.row set
    inputs = (row.inputs - incoming.missing) || incoming.inputs,
    change = nextval('autofill.signal'),
    deleted_at = null
from unnest(%(rows)s::bigint[], %(lines)s::bigint[]) as chosen (row_id, line)
join autofill.incoming on incoming.collection_id = %(collection_id)s and incoming.sync = %(sync)s
    and incoming.line = chosen.line
where row.collection_id = %(collection_id)s and row.row_id = chosen.row_id;
