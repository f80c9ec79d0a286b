-- `work.owners` costs nothing where nobody but the tuple's own dispatch has asked by name: an expression that the planner
-- writes into the insert, instead of a query for every row (18 to 24 µs a row become 12).
create function autofill.demand_owners_beside(demand jsonb, dispatch_id bigint) returns bigint[]
language sql immutable parallel safe as $$
    select array_agg(distinct (value ->> 2)::bigint) from jsonb_each(demand)
    where (value ->> 2)::bigint <> dispatch_id
$$;
-- (dispatch_id::text: `text || bigint` is only stable, and such a function is never inlined)
create or replace function autofill.demand_owners(demand jsonb, dispatch_id bigint) returns bigint[]
language sql immutable parallel safe as $$
    select case
        when jsonb_path_query_array(demand, '$.*[2]') <@ ('[' || dispatch_id::text || ']')::jsonb then null
        else autofill.demand_owners_beside(demand, dispatch_id) end
$$;
