-- How large each table is, its partitions together, and how much of it is dead.
select
    coalesce(parent.relname, class.relname)::text as "table",
    sum(pg_total_relation_size(class.oid))::bigint as total_bytes,
    sum(pg_indexes_size(class.oid))::bigint as index_bytes,
    coalesce(sum(activity.n_live_tup), 0)::bigint as live_tuples,
    coalesce(sum(activity.n_dead_tup), 0)::bigint as dead_tuples,
    max(greatest(activity.last_vacuum, activity.last_autovacuum)) as last_vacuum,
    max(greatest(activity.last_analyze, activity.last_autoanalyze)) as last_analyze
from {{ source('pg_catalog', 'pg_class') }} as class
left join {{ source('pg_catalog', 'pg_inherits') }} as inherits on inherits.inhrelid = class.oid
left join {{ source('pg_catalog', 'pg_class') }} as parent on parent.oid = inherits.inhparent
left join {{ source('pg_catalog', 'pg_stat_all_tables') }} as activity on activity.relid = class.oid
join {{ source('pg_catalog', 'pg_class') }} as sibling
    on sibling.oid = '{{ source('autofill', 'cell') }}'::regclass and sibling.relnamespace = class.relnamespace
where class.relkind = 'r'
group by 1
