-- The queue by lane, for the figures of a process: no more than `limit` lanes, those with most rows first.
select namespace || '/' || collection as collection, job_type, queued, delayed, parked, computing,
    coalesce(oldest_age, 0) as oldest_age
from autofill.lane
order by queued + delayed + parked + computing desc, 1, 2
limit %(limit)s;
