-- A dispatch may ask for some of the cells in its scope: those that are empty, outdated, or in error (of some classes).

-- What a cell must be, any of: 'empty', 'outdated', 'error:<class>'; null: every cell.
alter table autofill.dispatch add column only_if text[];

-- Explicit demand is now column id -> [signal, forced, dispatch, only_if]; an entry of three has no condition.
create or replace function autofill.dispatch_demand(dispatch autofill.dispatch) returns jsonb
language sql stable as $$
    select coalesce(jsonb_object_agg(named, jsonb_build_array(
        dispatch.signal, case when dispatch.force then dispatch.signal else 0 end, dispatch.id,
        to_jsonb(dispatch.only_if))), '{}')
    from unnest(dispatch.columns) as named
$$;

-- Of two demands for one column the later signal owns it, and what either wants is wanted: a force is kept, and so is
-- every condition; no condition takes them all.
create or replace function autofill.demand_merge(met jsonb, new jsonb) returns jsonb
language sql immutable parallel safe as $$
    select case when met = '{}' then new when new = '{}' then met else (
        select jsonb_object_agg(key, jsonb_build_array(signal, forced, dispatch_id, only_if)) from (
            select distinct on (key) key, value -> 0 as signal, value -> 2 as dispatch_id,
                max((value ->> 1)::bigint) over (partition by key) as forced,
                case when bool_or(coalesce(value -> 3, 'null') = 'null') over (partition by key) then 'null'::jsonb
                     else (select jsonb_agg(distinct condition)
                           from (select e.value from jsonb_each(met) as e where e.key = entry.key
                                 union all
                                 select e.value from jsonb_each(new) as e where e.key = entry.key) as pair
                           cross join jsonb_array_elements(pair.value -> 3) as condition) end as only_if
            from (select * from jsonb_each(met) union all select * from jsonb_each(new)) as entry
            order by key, (value ->> 0)::bigint desc
        ) as latest
    ) end
$$;
