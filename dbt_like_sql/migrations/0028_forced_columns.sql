-- A dispatch by force may force some of its columns only: what a tick computes anew, beside what it brings up to date. In
-- one dispatch, so that a row's visit answers both, each column after what it reads: of two, the sweep that comes first
-- finds the other's columns as they were.

-- Of the columns, those that the force is for; null: all of them.
alter table autofill.dispatch add column forced smallint[];

create or replace function autofill.dispatch_demand(dispatch autofill.dispatch) returns jsonb
language sql stable as $$
    select coalesce(jsonb_object_agg(named, jsonb_build_array(
        dispatch.signal,
        case when dispatch.force and named = any(coalesce(dispatch.forced, dispatch.columns)) then dispatch.signal else 0 end,
        dispatch.id, to_jsonb(dispatch.only_if))), '{}')
    from unnest(dispatch.columns) as named
$$;
