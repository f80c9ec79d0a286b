-- Compare-and-swap on the token (R2), cell and queue in one transaction (R3). The work tuples are locked, in key order,
-- by a statement before this one. One set-wise pass over the batch:
--   the winner's answer goes to its cell, only to the AI's side of it (R5); its demand counts as met;
--   the loser's changes nothing, but its call is booked: it was paid for.
-- `signal` is what the visit had planned with when the call started; `call` is false where no call was made (blocked,
-- fresh) and `cached` where it was another cell's, whose answer this one takes: that counts as an answer, and is booked
-- as saved instead of made; `demanded` is then the signal of the call that brought it; `retry` is a failure that will be
-- tried again and leaves the cell alone; `leaving` rows are released in this same transaction, which spares a write of
-- their work; `back` is the earlier result of the batch that it has read, as how many places it is before it, and `backs`
-- where it has read several. A value comes as its `string` or as `json`. `leaves` is, with the last result of a visit that
-- has nothing left to do and met all that was asked for, how often demand had come when it planned: its row's work goes
-- here, unless more has come since (R6). (By `release`, as others do, it cost a look-up and 6 µs a row more.) Models, tokens
-- and costs come as empty arrays where no call of the batch had a model; a cost of null is not known, and where `cached` it
-- is what the call that was spared had cost.
-- `state`: 'proposed' is an answer that is held for review, unless it is the one that is shown; 'waiting' is what a plan
-- found without a call, that a cell asked for by name has an input on its way.
with item as (
    select collection_id, row_id, claim, column_id, signal, call, coalesce(cached, false) as cached,
        coalesce(retry, false) as retry, leaving, dispatch_id, batch_id, read_change, coalesce(demanded, 0) as demanded,
        version, leaves, back, number, error_class, model, state, backs, tokens_in, tokens_out, tokens_cached,
        tokens_reasoning, cost, seconds, error, fingerprint, coalesce(to_jsonb(string), json) as value, details
    from unnest(
        %(collections)s::int[], %(rows)s::bigint[], %(claims)s::bigint[], %(columns)s::smallint[],
        %(signals)s::bigint[], %(calls)s::boolean[], %(cached)s::boolean[], %(retries)s::boolean[],
        %(leavings)s::boolean[], %(dispatches)s::bigint[], %(batches)s::int[], %(read_changes)s::bigint[],
        %(demanded)s::bigint[], %(versions)s::int[], %(leaves)s::int[], %(back)s::int[], %(error_classes)s::text[],
        %(models)s::text[], %(states)s::text[], %(backs)s::text[], %(tokens_in)s::bigint[], %(tokens_out)s::bigint[],
        %(tokens_cached)s::bigint[], %(tokens_reasoning)s::bigint[], %(costs)s::bigint[], %(seconds)s::real[],
        %(errors)s::text[], %(fingerprints)s::bytea[], %(strings)s::text[], %(jsons)s::jsonb[], %(details)s::jsonb[]
    ) with ordinality as i (
        collection_id, row_id, claim, column_id, signal, call, cached, retry, leaving, dispatch_id, batch_id, read_change,
        demanded, version, leaves, back, error_class, model, state, backs, tokens_in, tokens_out, tokens_cached,
        tokens_reasoning, cost, seconds, error, fingerprint, string, json, details, number
    )
    offset 0  -- made once, not wherever it is used
),
judged as materialized (
    -- What filters look at comes first, and what is long last: each of what follows takes a tuple apart up to the last of
    -- what it looks at.
    select
        -- an answer from the cache is as new as its call, and no newer than the demand
        case when cached then least(signal, demanded) when call then signal else 0 end as called,
        -- a blocked cell remembers also the force that came since the plan, which it meets
        case when call then 0 when asked then greatest(demanded, forced_now) else demanded end as forced,
        coalesce(state = 'proposed' and error_class is null and not same, false) as is_held,
        -- what is shown changes with the answer, unless a person's value hides it
        case when is_written then
            case when user_set or same or (was_error and error_class is not null) then was_change
                 else nextval('autofill.signal') end
        end as change,
        found.*
    from (
        select work.claim is not null as won,
            work.claim is not null and row.deleted_at is null and collection_column.deleted_at is null
                and not item.retry and (item.call or item.error_class is not null) as is_written,
            cell.collection_id is not null as is_known, coalesce(cell.user_set, false) as user_set,
            row.deleted_at is not null or collection_column.deleted_at is not null as deleted,
            item.error_class is null and cell.ai_value is not distinct from item.value and cell.error_class is null
                and cell.computed_at is not null as same,
            cell.computed_at is not null and cell.error_class is null and not cell.user_set as was_shown,
            work.raised = item.leaves as ends,
            -- a demand newer than the call is not met by it
            coalesce(demand.signal <= item.signal and is_new, false) as asked,
            not coalesce(demand.signal <= item.signal and is_new, true) as asked_again,
            -- a failed attempt; not what was told to wait, or would have met the same in any cell
            item.retry and item.error_class <> all('{rate_limited,waiting,quota,auth,model_missing}') as counts,
            -- for a file; since when stands in its work
            item.retry and item.error_class = 'waiting' as waits,
            case when work.waiting is null then false else work.waiting ? item.column_id::text end as has_waited,
            cell.error_class is not null as was_error,
            case when demand.signal <= item.signal and is_new then demand.dispatch_id
                 else coalesce(work.dispatch_id, item.dispatch_id) end as credited,
            work.dispatch_id as visiting, work.cascade, work.ctid as place, work.slots,
            cell.change as was_change, demand.forced as forced_now, work.owners, work.attempts,
            cell.version as was_version, cell.computed_at as was_computed_at, cell.model as was_model,
            item.*, cell.ai_value as was, cell.details as was_details, cell.held as was_held
        from item
        join autofill.row on row.collection_id = item.collection_id and row.row_id = item.row_id
        join autofill.collection_column on collection_column.collection_id = item.collection_id
            and collection_column.id = item.column_id
        -- probed by key, whatever the statistics of these fast-changing tables say
        left join lateral (
            select work.ctid, work.*, work.demand -> item.column_id::text as of_column from autofill.work
            where work.collection_id = item.collection_id and work.row_id = item.row_id
            offset 0
        ) as work on work.worker_id = %(worker_id)s and work.claim = item.claim
        left join lateral (
            select * from autofill.cell
            where cell.collection_id = item.collection_id and cell.row_id = item.row_id
              and cell.column_id = item.column_id
            offset 0
        ) as cell on true
        -- taken apart once, and not wherever one of them is used
        cross join lateral (
            select (work.of_column ->> 0)::bigint as signal, (work.of_column ->> 1)::bigint as forced,
                (work.of_column ->> 2)::bigint as dispatch_id
            offset 0
        ) as demand
        -- a force that came while the cache was asked takes nothing that is older than itself
        cross join lateral (
            select not item.cached or coalesce(demand.forced <= item.demanded, true) as is_new
        ) as answer
    ) as found
),
moved as (
    -- the numbers that this batch has moved, by place. Only they tell what a later result of it has read: where a person's
    -- value came meanwhile, the cell's number is of something that it has not
    select array_agg(case when change > coalesce(was_change, 0) then change else 0 end order by number) as changes
    from judged
),
made as (
    insert into autofill.cell as cell (
        collection_id, row_id, column_id, ai_value, fingerprint, called, demanded, change, read_change, version,
        model, computed_at, error_class, error, tokens_in, tokens_out, cost, details, held)
    select collection_id, row_id, column_id, value, fingerprint, called, forced,
        change,
        case when back is not null then greatest(read_change, (select changes from moved)[number - back])
             when backs is null then read_change
             else greatest(read_change, (select max((select changes from moved)[number - each])
                                         from unnest(backs::int[]) as each)) end,
        version, model, clock_timestamp(),
        case when is_held then 'proposed' else error_class end, case when is_held then 'waits for review' else error end,
        case when model is not null then tokens_in end, case when model is not null then tokens_out end,
        case when cached then 0 when model is not null then cost end, case when error_class is null then details end,
        case when is_held then '{}'::jsonb end
    from judged
    where is_written and not is_known
),
-- Apart from those made: `on conflict` would lock each tuple, and log that, before it changes it. Whether a cell is there
-- stays as it is, for whoever makes one has the row's work locked.
changed as (
    update autofill.cell set
        ai_value = case when judged.error_class is null then judged.value else cell.ai_value end,
        fingerprint = judged.fingerprint,
        called = greatest(cell.called, judged.called),
        demanded = case when judged.call then 0 else greatest(cell.demanded, judged.forced) end,
        change = judged.change,
        read_change = case
             when judged.back is not null
             then greatest(judged.read_change, (select changes from moved)[judged.number - judged.back])
             when judged.backs is null then judged.read_change
             else greatest(judged.read_change, (select max((select changes from moved)[judged.number - each])
                                                from unnest(judged.backs::int[]) as each)) end,
        version = judged.version,
        model = judged.model,
        computed_at = clock_timestamp(),
        error_class = case when judged.is_held then 'proposed' else judged.error_class end,
        error = case when judged.is_held then 'waits for review' else judged.error end,
        tokens_in = case when judged.model is not null then judged.tokens_in end,
        tokens_out = case when judged.model is not null then judged.tokens_out end,
        cost = case when judged.cached then 0 when judged.model is not null then judged.cost end,
        -- the answer's, which stays beside an error
        details = case when judged.error_class is null then judged.details else cell.details end,
        held = case when judged.error_class is not null then cell.held
                    when judged.is_held then coalesce(judged.was_held, case when judged.was is null then '{}'
                         else jsonb_build_object('accepted', judged.was) end) end
    from judged
    where judged.is_written and judged.is_known and cell.collection_id = judged.collection_id
      and cell.row_id = judged.row_id and cell.column_id = judged.column_id
),
replaced as (
    -- an answer that people saw, and that is another one now: the old one only
    insert into autofill.answer
        (collection_id, row_id, column_id, was, version, model, computed_at, dispatch_id, details)
    select collection_id, row_id, column_id, was, was_version, was_model, was_computed_at, credited, was_details
    from judged
    where is_written and call and error_class is null and was_shown and not same
),
refreshed as (
    -- found current again without a call: only the numbers move; without a version it is found outdated
    update autofill.cell set read_change = judged.read_change, version = coalesce(judged.version, cell.version)
    from judged
    where judged.won and not judged.deleted and not judged.call and judged.error_class is null
      and cell.collection_id = judged.collection_id and cell.row_id = judged.row_id
      and cell.column_id = judged.column_id
),
gone as (
    -- by their place, which nobody moves while they are locked: joined, a planner that takes `work` for nearly empty
    -- compares each with each (150 ms instead of 2 for 500)
    delete from autofill.work where ctid = any(array(select place from judged where ends))
),
eased as (
    update autofill.work set
        demand = work.demand - row_done.met,
        -- an answer may have made other cells due, also one that met no demand any more (it was canceled)
        cascade = work.cascade or row_done.answered,
        attempts = (work.attempts - row_done.met) || coalesce(row_done.failed, '{}'),
        waiting = nullif(coalesce(row_done.begun, '{}') || coalesce(work.waiting - row_done.met, '{}'), '{}')
    from (
        select collection_id, row_id,
            bool_or(not retry) as answered,
            coalesce(array_agg(column_id::text) filter (where not retry and not asked_again), '{}') as met,
            jsonb_object_agg(column_id, 1 + coalesce((attempts ->> column_id::text)::int, 0))
                filter (where retry and counts) as failed,
            jsonb_object_agg(column_id, extract(epoch from clock_timestamp())) filter (where waits) as begun
        from judged
        -- most answers of a visit that goes on change nothing of its work
        where won and case when retry then counts or (waits and not has_waited)
            else not leaving and (asked or not cascade or attempts ? column_id::text or has_waited) end
        group by collection_id, row_id
    ) as row_done
    where work.collection_id = row_done.collection_id and work.row_id = row_done.row_id
),
completed as (
    insert into autofill.completion (dispatch_id, collection_id, batch_id, column_id, outcome, row_ids,
        saved_tokens_in, saved_tokens_out, saved_cost)
    select credited, collection_id, batch_id, column_id,
        case when deleted then 'deleted' when error_class is not null then error_class
             when is_held then 'proposed' when not call then coalesce(state, 'fresh')
             when value is null and details ? 'not_found' then 'not_found'
             when cached then 'cached' when same then 'unchanged' else 'ready' end,
        array_agg(row_id),
        coalesce(sum(tokens_in) filter (where cached), 0), coalesce(sum(tokens_out) filter (where cached), 0),
        coalesce(sum(cost) filter (where cached), 0)
    from judged
    where won and not retry and (call or error_class is not null or asked)
    group by 1, 2, 3, 4, 5
),
booked as (
    insert into autofill.attempt (dispatch_id, collection_id, batch_id, column_id, row_ids, outcome, error_class,
        error, worker_id, model, tokens_in, tokens_out, tokens_cached, tokens_reasoning, cost, seconds)
    select credited, collection_id, batch_id, column_id, array_agg(row_id),
        case when not won then 'superseded' when error_class is null then 'succeeded' else 'failed' end,
        error_class, error, %(worker_id)s, model, coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0),
        coalesce(sum(tokens_cached), 0), coalesce(sum(tokens_reasoning), 0), case when model is not null then sum(cost) end,
        array_agg(seconds) filter (where seconds is not null)
    from judged
    -- the first look for a file is told, not each
    where call and not cached and not (waits and has_waited)
    -- a sum of known and unknown costs would be neither
    group by 1, 2, 3, 4, won, error_class, error, model, cost is null,
        case when error_class is not null then number end
),
used as (
    insert into autofill.usage_delta (namespace_id, collection_id, column_id, model, dispatch_id, calls, failed,
        tokens_in, tokens_cached, tokens_out, tokens_reasoning, cost, unpriced)
    select collection.namespace_id, judged.collection_id, column_id, model, credited, count(*),
        count(error_class), sum(tokens_in), sum(tokens_cached), sum(tokens_out), sum(tokens_reasoning),
        coalesce(sum(cost), 0), count(*) filter (where cost is null)
    from judged join autofill.collection on collection.id = judged.collection_id
    where call and not cached and model is not null
    group by 1, 2, 3, 4, 5
)
-- Of what leaves with its batch nothing is told: its visit goes on with a fresh reading or not at all. `met`: whose demand is
-- met while another dispatch's visit goes on: their end may have come, and a release that keeps its row tells of none.
-- `remembers`: a force that waits for its input, to be kept with the cell. `stays`: it was to leave, and has not.
select number, won, change, coalesce(change > coalesce(was_change, 0), false) as moved,
    case when credited <> visiting then credited end as met, case when won and state = 'waiting' then forced end as remembers,
    leaves is not null and ends is not true as stays, null::int as collection_id, null::int as slots,
    null::bigint[] as dispatches
from judged
where not (won and leaving) or credited <> visiting or state = 'waiting' or (leaves is not null and ends is not true)
union all
-- the slots that come free, and whose end may have come: told together of those that came to the same
select null, null, null, null, null, null, null, collection_id, sum(slots)::int, visiting || coalesce(owners, '{}')
from judged where ends
group by collection_id, visiting, owners;
