select version.loading from autofill.version join autofill.collection on collection.id = version.collection_id
where collection.id = %(collection_id)s and version.number = collection.version;
