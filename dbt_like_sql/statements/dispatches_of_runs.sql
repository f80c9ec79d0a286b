-- Dispatches made by runs that have not ended, oldest first.
select dispatch.id, dispatch.key from autofill.dispatch
where ended_at is null and reason = 'run'
order by id
limit %(limit)s;
