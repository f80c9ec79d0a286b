-- The visits about to be read whose hint is set, in key order and without waiting: a hint is cleared only where the
-- reading behind it holds the demand that set it. One that somebody holds is read all the same, and keeps its hint.
select work.collection_id, work.row_id from autofill.work
join unnest(%(collections)s::int[], %(rows)s::bigint[], %(claims)s::bigint[]) as wanted (collection_id, row_id, claim)
    using (collection_id, row_id, claim)
where work.worker_id = %(worker_id)s and work.dirty
order by work.collection_id, work.row_id
for update of work skip locked;
