-- How many cells of a dispatch ended in each of %(parts)s equal parts of the time since it was made. Reads its
-- completions, one for each finalize × batch × column × outcome.
with asked as (
    select id, created_at,
        greatest(extract(epoch from coalesce(ended_at, clock_timestamp()) - created_at), 0.001)::float8 as seconds
    from autofill.dispatch where id = %(dispatch_id)s
),
counted as (
    select part, sum(cells)::bigint as cells from (
        select cardinality(row_ids) as cells, greatest(1, least(%(parts)s,
            ceil(extract(epoch from completed_at - created_at) / seconds * %(parts)s)))::int as part
        from asked join autofill.completion on dispatch_id = asked.id
    ) as placed
    group by part
)
select part, seconds, coalesce(cells, 0) as cells
from asked cross join generate_series(1, %(parts)s) as part left join counted using (part)
order by part;
