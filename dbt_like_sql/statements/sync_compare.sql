-- The snapshot against the rows, as loaded: what people have set is not looked at. Of rows that share a key the first one
-- alive is the snapshot's, or, where none is, the newest deleted one; others alive go. Where they stay (`partial`: what is not
-- in the snapshot stays), all that are alive are the snapshot's. One pass over each, whatever changed.
with matched as materialized (
    select row.row_id, row.deleted_at is null as alive, incoming.line,
        (row.inputs - incoming.missing) || incoming.inputs is distinct from row.inputs as differs
    from autofill.row
    left join autofill.incoming on incoming.collection_id = %(collection_id)s and incoming.sync = %(sync)s
        and jsonb_build_array(incoming.inputs -> %(key_1)s, incoming.inputs -> %(key_2)s, incoming.inputs -> %(key_3)s,
                incoming.inputs -> %(key_4)s)
            = jsonb_build_array(row.inputs -> %(key_1)s, row.inputs -> %(key_2)s, row.inputs -> %(key_3)s,
                row.inputs -> %(key_4)s)
    where row.collection_id = %(collection_id)s
),
judged as materialized (
    select *, line is not null and (%(partial)s and alive or row_number() over (
        partition by line order by alive desc, case when alive then row_id else - row_id end) = 1) as is_its
    from matched
)
insert into autofill.difference (collection_id, sync, what, number, line)
select %(collection_id)s, %(sync)s, case when not is_its then 'delete' when alive then 'update' else 'restore' end,
    row_id, case when is_its then line end
from judged
where case when is_its then differs or not alive else alive end
union all
select %(collection_id)s, %(sync)s, 'insert', line, line
from autofill.incoming
where collection_id = %(collection_id)s and sync = %(sync)s
  and not exists (select from judged where judged.line = incoming.line);
