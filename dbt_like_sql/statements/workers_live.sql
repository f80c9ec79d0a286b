select id, host, pid, job_types, extract(epoch from clock_timestamp() - beat_at)::float8 as beat_age from autofill.worker
where ended_at is null and beat_at + lease > clock_timestamp()
order by started_at;
