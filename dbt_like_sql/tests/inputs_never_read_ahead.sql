-- A cell's numbers never claim to have read a change that no input has had.
select cell.collection_id, cell.row_id, cell.column_id
from {{ source('autofill', 'cell') }}
join {{ source('autofill', 'row') }} using (collection_id, row_id)
where cell.read_change > greatest(
    row.change,
    (select max(change) from {{ source('autofill', 'cell') }} as input
     where input.collection_id = cell.collection_id and input.row_id = cell.row_id)
)
