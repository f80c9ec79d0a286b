-- The input cells of a page of rows, as shown.
with page as (
    select collection_id, row_id, inputs from autofill.row
    where collection_id = %(collection_id)s and row_id > %(after)s and deleted_at is null
    order by row_id
    limit %(limit)s
)
select page.row_id, definition.column_id,
    case when cell.user_set then cell.user_value else page.inputs -> definition.column_id::text end as value,
    coalesce(cell.user_set, false) as edited
from page
join autofill.collection on collection.id = page.collection_id
join autofill.definition on definition.collection_id = collection.id and definition.version = collection.version
    and definition.kind is null
left join autofill.cell on cell.collection_id = page.collection_id and cell.row_id = page.row_id
    and cell.column_id = definition.column_id
order by page.row_id, definition.position;
