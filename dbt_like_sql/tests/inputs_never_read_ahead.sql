-- A cell's numbers never claim to have read a change that no input has had.
select cell.collection_id, cell.row_id, cell.column_id
from (
    -- by row first: asked of each cell by itself, a million of them took 24 s, and 1 s so
    select collection_id, row_id, max(change) as change, max(read_change) as read_change
    from {{ source('autofill', 'cell') }}
    group by collection_id, row_id
) as latest
join {{ source('autofill', 'row') }}
    on row.collection_id = latest.collection_id and row.row_id = latest.row_id
    and latest.read_change > greatest(row.change, latest.change)
join {{ source('autofill', 'cell') }}
    on cell.collection_id = latest.collection_id and cell.row_id = latest.row_id
    and cell.read_change > greatest(row.change, latest.change)
