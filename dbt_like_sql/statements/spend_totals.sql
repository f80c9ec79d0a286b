-- What models' calls have cost so far by collection, in dollars: no more than `limit` collections, the dearest first.
-- From the tables that `autofill.spend` adds up, without the attempts in it, which cost nothing and are many.
select namespace.name || '/' || collection.name as collection, sum(spent.calls)::bigint as calls,
    (sum(spent.tokens_in) + sum(spent.tokens_out))::bigint as tokens, (sum(spent.cost) / 1000000000)::float8 as cost
from (
    -- one snapshot: what is rolled up meanwhile is in exactly one of the two
    select collection_id, calls, tokens_in, tokens_out, cost from autofill.usage
    union all
    select collection_id, calls, tokens_in, tokens_out, cost from autofill.usage_delta
) as spent
join autofill.collection on collection.id = spent.collection_id
join autofill.namespace on namespace.id = collection.namespace_id
group by 1
order by sum(spent.cost) desc, 1
limit %(limit)s;
