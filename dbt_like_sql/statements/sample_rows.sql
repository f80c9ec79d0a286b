-- Rows by id, for an estimate: what a plan reads of them; with `deleted` also those that are gone. Locks nothing.
select row_id, change, inputs from autofill.row
where collection_id = %(collection_id)s and row_id = any(%(rows)s) and (deleted_at is null or %(deleted)s);
