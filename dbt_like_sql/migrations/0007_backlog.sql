-- How much of a lane waits to be tried again, without reading all of it: a sweep is held back by it.
create index work_delayed_lane on autofill.work (collection_id, job_type) where state = 'delayed';
