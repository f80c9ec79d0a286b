-- Computed cells that show an error, by class (not what waits for review): those of deleted rows and columns, and those that a person has
-- overridden, show none.
select
    namespace.name as namespace,
    collection.name as collection,
    definition.name as "column",
    cell.error_class,
    count(*) as cells,
    max(cell.computed_at) as latest
from {{ source('autofill', 'cell') }}
join {{ source('autofill', 'row') }}
    on row.collection_id = cell.collection_id and row.row_id = cell.row_id and row.deleted_at is null
join {{ source('autofill', 'collection') }} on collection.id = cell.collection_id
join {{ source('autofill', 'namespace') }} on namespace.id = collection.namespace_id
join {{ source('autofill', 'definition') }}
    on definition.collection_id = collection.id and definition.version = collection.version
    and definition.column_id = cell.column_id
where cell.error_class <> 'proposed' and not cell.user_set
group by namespace.name, collection.name, definition.name, cell.error_class
