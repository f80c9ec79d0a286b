-- What may still be spent on these collections: by each budget of their namespaces, and by each capped dispatch of theirs
-- that is open. Rolled up and not yet rolled up in one snapshot. Days are UTC's.
select budget.id as budget_id, null::bigint as dispatch_id, budget.namespace_id, namespace.name as namespace,
    budget.collection_id, budget.column_id, budget.period, budget.amount, used.cost - budget.base as spent,
    false as is_paused
from (select distinct namespace_id from autofill.collection where id = any(%(collections)s::int[])) as touched
join autofill.budget on budget.namespace_id = touched.namespace_id
join autofill.namespace on namespace.id = budget.namespace_id
cross join lateral (
    select coalesce(sum(cost), 0)::bigint as cost from (
        select cost from autofill.usage_total
        where budget.period <> 'day' and usage_total.namespace_id = budget.namespace_id
          and (budget.collection_id is null or usage_total.collection_id = budget.collection_id)
          and (budget.column_id is null or usage_total.column_id = budget.column_id)
        union all
        select cost from autofill.usage
        where budget.period = 'day' and usage.day = (statement_timestamp() at time zone 'UTC')::date
          and usage.namespace_id = budget.namespace_id
          and (budget.collection_id is null or usage.collection_id = budget.collection_id)
          and (budget.column_id is null or usage.column_id = budget.column_id)
        union all
        select cost from autofill.usage_delta
        where usage_delta.namespace_id = budget.namespace_id
          and (budget.period <> 'day' or usage_delta.day = (statement_timestamp() at time zone 'UTC')::date)
          and (budget.collection_id is null or usage_delta.collection_id = budget.collection_id)
          and (budget.column_id is null or usage_delta.column_id = budget.column_id)
    ) as each
) as used
union all
select null, dispatch.id, collection.namespace_id, namespace.name, dispatch.collection_id, null, 'dispatch',
    dispatch.max_cost, dispatch.spent + used.cost, dispatch.paused_at is not null
from autofill.dispatch
join autofill.collection on collection.id = dispatch.collection_id
join autofill.namespace on namespace.id = collection.namespace_id
cross join lateral (
    select coalesce(sum(cost), 0)::bigint as cost from autofill.usage_delta where dispatch_id = dispatch.id
) as used
where dispatch.ended_at is null and dispatch.max_cost is not null
  and dispatch.collection_id = any(%(collections)s::int[]);
