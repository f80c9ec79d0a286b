select collection.id, namespace.name as namespace, collection.name, collection.version, collection.cap,
    collection.next_row
from autofill.collection join autofill.namespace on namespace.id = collection.namespace_id
where namespace.name = %(namespace)s and collection.name = %(name)s;
