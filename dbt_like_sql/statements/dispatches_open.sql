-- Dispatches that have not ended, oldest first: the janitor looks whether they should have, and whether a cancel, a pause
-- or a resume has been left half-way.
select id, canceled_at is not null as canceled,
    case when unsettled_at < clock_timestamp() - interval '10 seconds' then unsettled_at end as unsettled_at
from autofill.dispatch where ended_at is null and id > %(after)s order by id limit %(limit)s;
