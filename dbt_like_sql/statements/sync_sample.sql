-- Some, by chance, of what the comparison found that makes cells due: what the snapshot says of a row, or of a new one.
select case when difference.what <> 'insert' then difference.number end as row_id, incoming.inputs, incoming.missing
from autofill.difference
join autofill.incoming on incoming.collection_id = difference.collection_id and incoming.sync = difference.sync
    and incoming.line = difference.line
where difference.collection_id = %(collection_id)s and difference.sync = %(sync)s
  and difference.what in ('insert', 'update', 'restore')
order by random()
limit %(limit)s;
