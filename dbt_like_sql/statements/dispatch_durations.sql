-- How long a dispatch's calls took, by column: seconds that 50, 95 and 99 of 100 were done within, and of how many. Of every
-- %(every)s-th attempt (calls folded by finalize), so that no more are sorted for more cells.
select column_id, percentile_cont(array[0.5, 0.95, 0.99]) within group (order by taken) as seconds, count(*) as calls
from autofill.attempt cross join unnest(seconds) as taken
where dispatch_id = %(dispatch_id)s and seconds is not null and id %% %(every)s = 0
group by column_id;
