-- Where a reader of the completions begins that has none behind it: here, and with the dispatches of the last day and those
-- that have not ended. What those complete from here on is behind the cursor, what they have completed is known by their id.
select pg_snapshot_xmin(pg_current_snapshot())::text as xid,
    array(select id from autofill.dispatch
          where ended_at is null or created_at > clock_timestamp() - interval '1 day'
          order by id desc limit %(limit)s) as dispatches;
