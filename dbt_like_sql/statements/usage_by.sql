-- What calls took since a day, by what is asked for (namespace, collection, column, model, day; null: not split by it).
select
    case when 'namespace' = any(%(by)s::text[]) or 'collection' = any(%(by)s::text[]) then namespace end as namespace,
    case when 'collection' = any(%(by)s::text[]) then collection end as collection,
    case when 'column' = any(%(by)s::text[]) then "column" end as "column",
    case when 'model' = any(%(by)s::text[]) then model end as model,
    case when 'day' = any(%(by)s::text[]) then day end as day,
    sum(calls)::bigint as calls, sum(failed)::bigint as failed, sum(tokens_in)::bigint as tokens_in,
    sum(tokens_cached)::bigint as tokens_cached, sum(tokens_out)::bigint as tokens_out,
    sum(tokens_reasoning)::bigint as tokens_reasoning, (sum(cost) * 1000000000)::bigint as cost,
    sum(unpriced)::bigint as unpriced
from autofill.spend
where model is not null
  and (%(namespace)s::text is null or namespace = %(namespace)s)
  and (%(collection)s::text is null or collection = %(collection)s)
  and (%(since)s::date is null or day >= %(since)s)
group by 1, 2, 3, 4, 5
order by 5 nulls first, 1, 2, 3, 4;
