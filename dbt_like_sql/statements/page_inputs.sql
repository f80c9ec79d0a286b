-- The input cells of a page of rows, as shown.
-- (num_nonnulls: without statistics `is null` is taken for one row in 200, and the page then sorts the collection.)
with page as (
    select collection_id, row_id, inputs from autofill.row
    where collection_id = %(collection_id)s and row_id > %(after)s and num_nonnulls(deleted_at) <> 1
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
left join lateral (
    select user_set, user_value from autofill.cell
    where cell.collection_id = page.collection_id and cell.row_id = page.row_id
      and cell.column_id = definition.column_id
    limit 1
) as cell on true
order by page.row_id, definition.position;
