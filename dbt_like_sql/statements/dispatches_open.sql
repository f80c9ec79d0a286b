-- Dispatches that have not ended, oldest first: the janitor looks whether they should have.
select id, canceled_at is not null as canceled from autofill.dispatch where ended_at is null and id > %(after)s order by id limit %(limit)s;
