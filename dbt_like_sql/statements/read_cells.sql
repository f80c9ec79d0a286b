-- The cells of the rows that visits plan with, read after `read_visits`: newer than the signal there at worst, and then the
-- demand that made them so is still to come. (As one JSON array a row, in that statement, they took 25 µs a row of both
-- servers' time, 15 like this.)
select cell.collection_id, cell.row_id, cell.column_id, cell.user_set, cell.user_value, cell.ai_value, cell.fingerprint,
    cell.called, cell.demanded, cell.change, cell.read_change, cell.error_class, cell.details, cell.held
from unnest(%(collections)s::int[], %(rows)s::bigint[]) as wanted (collection_id, row_id)
cross join lateral (
    select * from autofill.cell
    where cell.collection_id = wanted.collection_id and cell.row_id = wanted.row_id
    offset 0
) as cell;
