-- Credit for a namespace. What had been spent before the first of it was not its to pay. (The namespace's tuple is locked:
-- of two firsts at once the later adds to the earlier.)
with locked as (select id from autofill.namespace where id = %(namespace_id)s for update),
entry as (
    insert into autofill.credit (namespace_id, amount, actor) select id, %(amount)s, %(actor)s from locked
)
insert into autofill.budget as budget (namespace_id, period, amount, base, actor)
select id, 'credit', %(amount)s, (
    select coalesce(sum(cost), 0) from (
        select cost from autofill.usage_total where usage_total.namespace_id = %(namespace_id)s
        union all
        select cost from autofill.usage_delta where usage_delta.namespace_id = %(namespace_id)s
    ) as each
), %(actor)s
from locked
on conflict (namespace_id, collection_id, column_id, period) do update
set amount = budget.amount + excluded.amount, actor = excluded.actor, set_at = clock_timestamp();
