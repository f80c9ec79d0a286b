-- Calls that would be charged to a budget that is reached are not made. Who finds it so again changes nothing.
insert into autofill.hold as hold (namespace_id, collection_id, job_type, column_id, reason, message, expires_at)
values (%(namespace_id)s, %(collection_id)s, %(job_type)s, %(column_id)s::smallint, 'budget', %(message)s,
    case when %(is_daily)s then (date_trunc('day', clock_timestamp() at time zone 'UTC') + interval '1 day')
        at time zone 'UTC' end)
on conflict (namespace_id, collection_id, job_type, column_id) where lifted_at is null do update
set message = excluded.message, expires_at = excluded.expires_at
where hold.reason = 'budget'
  and (hold.message, hold.expires_at) is distinct from (excluded.message, excluded.expires_at)
returning id, xmax = 0 as is_new;
