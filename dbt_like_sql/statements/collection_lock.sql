-- The collection, locked first of all locks: versions, and the signals of sweeps, are ordered by it.
select id, version, cap, next_row from autofill.collection where id = %(collection_id)s for no key update;
