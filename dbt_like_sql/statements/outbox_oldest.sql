-- The first day of the oldest week whose completions are kept apart; older weeks are dropped as wholes.
select min(to_date(right(child.relname, 7), 'IYYY"w"IW')) as day
from pg_inherits
join pg_class as child on child.oid = inhrelid
where inhparent = 'autofill.completion'::regclass and child.relname ~ '_[0-9]{4}w[0-9]{2}$';
