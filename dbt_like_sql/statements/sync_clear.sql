-- What syncs of a collection have left in the staging tables, up to this one.
with gone as (
    delete from autofill.incoming where collection_id = %(collection_id)s and sync <= %(through)s
)
delete from autofill.difference where collection_id = %(collection_id)s and sync <= %(through)s;
