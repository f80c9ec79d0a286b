select id, key, source, first_row, last_row, rejected, rejected_rows, loaded_at, actor from autofill.batch
where collection_id = %(collection_id)s and not exists (select from unnest(%(known)s::text[]) as one where one = key)
order by id
limit %(limit)s;
