-- The poll of a worker's visits: which of them have new demand.
select collection_id, row_id, claim from autofill.work where worker_id = %(worker_id)s and dirty;
