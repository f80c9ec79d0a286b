-- The queue as people see it.
select namespace, collection, job_type, queued, delayed, computing, oldest from autofill.lane
order by namespace, collection, job_type;
