-- Calls that would be charged to a budget that is reached are not made. Who finds it so again changes nothing. A hold for
-- the first of the job types that bill, and for each other one that a column of the scope is of.
insert into autofill.hold as hold (namespace_id, collection_id, job_type, column_id, reason, message, expires_at)
select %(namespace_id)s::int, %(collection_id)s::int, billing.job_type, %(column_id)s::smallint, 'budget', %(message)s::text,
    case when %(is_daily)s then (date_trunc('day', clock_timestamp() at time zone 'UTC') + interval '1 day')
        at time zone 'UTC' end
from unnest(%(job_types)s::text[]) with ordinality as billing (job_type, place)
where billing.place = 1 or exists (
    select from autofill.collection
    join autofill.definition on definition.collection_id = collection.id and definition.version = collection.version
    where collection.namespace_id = %(namespace_id)s::int and definition.kind = billing.job_type
      and (%(collection_id)s::int is null or collection.id = %(collection_id)s)
      and (%(column_id)s::smallint is null or definition.column_id = %(column_id)s))
on conflict (namespace_id, collection_id, job_type, column_id) where lifted_at is null do update
set message = excluded.message, expires_at = excluded.expires_at
where hold.reason = 'budget'
  and (hold.message, hold.expires_at) is distinct from (excluded.message, excluded.expires_at)
returning id, xmax = 0 as is_new;
