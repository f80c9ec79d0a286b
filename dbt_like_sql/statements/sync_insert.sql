-- Lines of the snapshot as rows of a batch, in their order.
insert into autofill.row (collection_id, row_id, batch_id, inputs)
select incoming.collection_id, %(first_row)s + place - 1, %(batch_id)s, incoming.inputs
from unnest(%(lines)s::bigint[]) with ordinality as chosen (line, place)
join autofill.incoming on incoming.collection_id = %(collection_id)s and incoming.sync = %(sync)s
    and incoming.line = chosen.line;
