select collection.id, namespace.name as namespace, collection.name, collection.version, collection.cap,
    collection.next_row
from autofill.collection join autofill.namespace on namespace.id = collection.namespace_id
where collection.version > 0
order by namespace.name, collection.name;
