-- The files of a batch, by key: whoever loads one of them at this moment is waited for. Fewer back than were given: those
-- are in, and the caller's batch is not to be.
insert into autofill.batch_file (collection_id, key, batch_id, name, first_row, last_row, rejected_rows)
select %(collection_id)s, key, %(batch_id)s, name, first_row, last_row, rejected_rows
from unnest(%(keys)s::text[], %(names)s::text[], %(first_rows)s::bigint[], %(last_rows)s::bigint[],
    %(rejected_rows)s::bigint[]) as file (key, name, first_row, last_row, rejected_rows)
order by key
on conflict (collection_id, key) do nothing;
