-- The batch is there with its rows, or not at all. No row back: another load of the same content was first.
insert into autofill.batch (collection_id, id, key, source, first_row, last_row, rejected, rejected_rows, actor)
values (%(collection_id)s, %(batch_id)s, %(key)s, %(source)s, %(first_row)s, %(last_row)s, %(rejected)s,
    %(rejected_rows)s, %(actor)s)
on conflict (collection_id, key) do nothing
returning id;
