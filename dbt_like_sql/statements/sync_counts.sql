-- What there is to do, and how many rows the snapshot and the collection have.
select (select count(*) from autofill.incoming where collection_id = %(collection_id)s and sync = %(sync)s) as incoming,
    (select count(*) from autofill.row where collection_id = %(collection_id)s and deleted_at is null) as alive,
    count(*) filter (where what = 'insert') as inserts, count(*) filter (where what = 'update') as updates,
    count(*) filter (where what = 'restore') as restores, count(*) filter (where what = 'delete') as deletes
from autofill.difference
where collection_id = %(collection_id)s and sync = %(sync)s;
