-- A bounded step of the roll-up: deltas that have committed go, and their sums are in the totals, in one transaction. The
-- deltas are locked by nobody else but for the time of their own insert; one janitor at a time holds the lock before this.
with gone as (
    delete from autofill.usage_delta
    where ctid = any(array(select ctid from autofill.usage_delta limit %(limit)s))
    returning *
),
by_day as (
    insert into autofill.usage as usage (namespace_id, day, collection_id, column_id, model, calls, failed, tokens_in,
        tokens_cached, tokens_out, tokens_reasoning, cost, unpriced)
    select namespace_id, day, collection_id, column_id, model, sum(calls), sum(failed), sum(tokens_in),
        sum(tokens_cached), sum(tokens_out), sum(tokens_reasoning), sum(cost), sum(unpriced)
    from gone
    group by 1, 2, 3, 4, 5
    on conflict (namespace_id, day, collection_id, column_id, model) do update set
        calls = usage.calls + excluded.calls,
        failed = usage.failed + excluded.failed,
        tokens_in = usage.tokens_in + excluded.tokens_in,
        tokens_cached = usage.tokens_cached + excluded.tokens_cached,
        tokens_out = usage.tokens_out + excluded.tokens_out,
        tokens_reasoning = usage.tokens_reasoning + excluded.tokens_reasoning,
        cost = usage.cost + excluded.cost,
        unpriced = usage.unpriced + excluded.unpriced
),
in_all as (
    insert into autofill.usage_total as total (namespace_id, collection_id, column_id, cost)
    select namespace_id, collection_id, column_id, sum(cost) from gone group by 1, 2, 3
    on conflict (namespace_id, collection_id, column_id) do update set cost = total.cost + excluded.cost
),
-- in key order: others end and pause dispatches meanwhile
locked as materialized (
    select dispatch.id, of_it.cost from autofill.dispatch
    join (select dispatch_id, sum(cost) as cost from gone group by 1 having sum(cost) > 0) as of_it
        on of_it.dispatch_id = dispatch.id
    order by dispatch.id
    for no key update of dispatch
),
by_dispatch as (
    update autofill.dispatch set spent = dispatch.spent + locked.cost from locked where dispatch.id = locked.id
)
select count(*) as deltas from gone;
