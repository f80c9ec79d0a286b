-- The next sync of a collection, which overtakes those before it; under their lock.
insert into autofill.sync (collection_id, number, source, actor)
select %(collection_id)s, coalesce(max(number), 0) + 1, %(source)s, %(actor)s from autofill.sync
where collection_id = %(collection_id)s
returning number;
