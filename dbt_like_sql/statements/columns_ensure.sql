-- Column ids are given once and kept for ever. A column that comes back is the same column.
insert into autofill.collection_column (collection_id, id, key)
select %(collection_id)s,
    (select coalesce(max(id), 0) from autofill.collection_column where collection_id = %(collection_id)s)
        + row_number() over (order by position),
    key
from unnest(%(keys)s::text[]) with ordinality as wanted (key, position)
where not exists (select from autofill.collection_column as known
                  where known.collection_id = %(collection_id)s and known.key = wanted.key);
