-- Files of the same content under several names, by the digests of living rows; the largest groups first.
select inputs ->> %(digest)s as digest, array_agg(inputs ->> %(path)s order by inputs ->> %(path)s) as paths
from autofill.row
where collection_id = %(collection_id)s and deleted_at is null and inputs ? %(digest)s and inputs ? %(path)s
group by 1
having count(distinct inputs ->> %(path)s) > 1
order by count(*) desc, 1
limit %(limit)s;
