-- Credit as it was given, latest first.
select namespace.name as namespace, credit.amount, credit.actor, credit.added_at
from autofill.credit join autofill.namespace on namespace.id = credit.namespace_id
where %(namespace_id)s::int is null or namespace_id = %(namespace_id)s
order by credit.id desc
limit %(limit)s;
