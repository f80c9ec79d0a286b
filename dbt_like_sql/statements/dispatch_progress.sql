-- How far dispatches are. Counts are for display; only ended_at says that one has ended.
select dispatch.id, dispatch.collection_id, dispatch.reason, dispatch.actor, dispatch.columns, dispatch.force,
    dispatch.key, dispatch.total, dispatch.version, dispatch.created_at, dispatch.ended_at,
    dispatch.canceled_at, dispatch.paused_at, dispatch.only_if, dispatch.pause_reason, dispatch.max_cost,
    coalesce(done.outcomes, '{}') as outcomes, coalesce(called.attempts, '{}') as attempts,
    coalesce(called.tokens_in, 0) as tokens_in, coalesce(called.tokens_out, 0) as tokens_out,
    coalesce(called.tokens_cached, 0) as tokens_cached, coalesce(called.tokens_reasoning, 0) as tokens_reasoning,
    coalesce(called.cost, 0) as cost, coalesce(called.unpriced, 0) as unpriced,
    coalesce(done.saved_tokens_in, 0) as saved_tokens_in, coalesce(done.saved_tokens_out, 0) as saved_tokens_out,
    coalesce(done.saved_cost, 0) as saved_cost,
    coalesce(open.states, '{}') as work, coalesce(ahead.rows, 0) as rows_ahead,
    coalesce(dispatch.total / nullif(coalesce(nullif(cardinality(dispatch.columns), 0), width.columns), 0), 0) as rows,
    coalesce(done.recent, 0) as recent,
    least(60, extract(epoch from clock_timestamp() - dispatch.created_at))::float8 as recent_seconds
from autofill.dispatch
left join lateral (
    select jsonb_object_agg(outcome, cells) as outcomes, sum(recent)::bigint as recent,
        sum(saved_tokens_in)::bigint as saved_tokens_in, sum(saved_tokens_out)::bigint as saved_tokens_out,
        sum(saved_cost)::bigint as saved_cost
    from (
        select outcome, sum(saved_tokens_in) as saved_tokens_in, sum(saved_tokens_out) as saved_tokens_out,
            sum(saved_cost) as saved_cost,
            sum(cardinality(row_ids)) as cells, sum(cardinality(row_ids)) filter (
            where completed_at > clock_timestamp() - interval '60 s') as recent
        from autofill.completion where dispatch_id = dispatch.id group by outcome
    ) as by_outcome
) as done on true
left join lateral (
    select jsonb_object_agg(outcome, calls) as attempts, sum(tokens_in)::bigint as tokens_in,
        sum(tokens_out)::bigint as tokens_out, sum(tokens_cached)::bigint as tokens_cached,
        sum(tokens_reasoning)::bigint as tokens_reasoning, sum(cost)::bigint as cost, sum(unpriced)::bigint as unpriced
    from (
        select outcome, sum(cardinality(row_ids)) as calls, sum(tokens_in) as tokens_in, sum(tokens_out) as tokens_out,
            sum(tokens_cached) as tokens_cached, sum(tokens_reasoning) as tokens_reasoning, sum(cost) as cost,
            sum(cardinality(row_ids)) filter (where cost is null and model is not null) as unpriced
        from autofill.attempt where dispatch_id = dispatch.id group by outcome
    ) as by_outcome
) as called on true
left join lateral (
    select jsonb_object_agg(state, rows) as states from (
        select state, count(*) as rows from (
            select state from autofill.work where work.dispatch_id = dispatch.id
            union all
            select state from autofill.work where owners is not null and owners @> array[dispatch.id]
        ) as owned group by state
    ) as by_state
) as open on true
left join lateral (
    select sum(last_row - cursor + holes.rows)::bigint as rows from autofill.sweep
    cross join lateral (select count(*) as rows from autofill.sweep_hole where sweep_id = sweep.id) as holes
    where sweep.dispatch_id = dispatch.id and closed_at is null
) as ahead on true
left join lateral (
    select count(*) as columns from autofill.definition
    where definition.collection_id = dispatch.collection_id and definition.version = dispatch.version
      and kind is not null and mode = 'on_change'
) as width on true
where dispatch.id = any(%(dispatches)s)
order by dispatch.id;
