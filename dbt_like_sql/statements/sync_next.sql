-- The next of what the comparison found, in order.
select number, line from autofill.difference
where collection_id = %(collection_id)s and sync = %(sync)s and what = %(what)s and number > %(after)s
order by number
limit %(limit)s;
