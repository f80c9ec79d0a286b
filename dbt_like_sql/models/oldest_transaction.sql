-- What keeps dead tuples from being removed, and completions from being read: transactions, prepared ones, replication
-- slots and standbys, with the age of the oldest transaction that each still sees. Of other roles' backends only a member
-- of pg_read_all_stats sees it.
select
    'backend' as kind,
    backend.pid::text as name,
    backend.application_name as application,
    backend.datname::text as database,
    backend.state,
    greatest(age(backend.backend_xmin), age(backend.backend_xid)) as transactions,
    backend.xact_start as started_at,
    extract(epoch from clock_timestamp() - backend.xact_start)::float8 as age
from {{ source('pg_catalog', 'pg_stat_activity') }} as backend
where backend.pid <> pg_backend_pid() and (backend.backend_xmin is not null or backend.backend_xid is not null)
union all
select
    'prepared',
    gid,
    null,
    database::text,
    'prepared',
    age(transaction),
    prepared,
    extract(epoch from clock_timestamp() - prepared)::float8
from {{ source('pg_catalog', 'pg_prepared_xacts') }}
union all
select
    'replication slot',
    slot_name::text,
    plugin::text,
    database::text,
    case when active then 'active' else 'inactive' end,
    greatest(age(xmin), age(catalog_xmin)),
    null,
    null
from {{ source('pg_catalog', 'pg_replication_slots') }}
where xmin is not null or catalog_xmin is not null
union all
select
    'standby',
    pid::text,
    application_name,
    null,
    state,
    age(backend_xmin),
    null,
    null
from {{ source('pg_catalog', 'pg_stat_replication') }}
where backend_xmin is not null
