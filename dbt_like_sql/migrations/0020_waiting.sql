-- Cells that wait for a file: since when, as column id -> seconds since 1970 by this server's clock; null where none does.
alter table autofill.work add column waiting jsonb;
create index work_waiting on autofill.work (collection_id, job_type) where state = 'delayed' and waiting is not null;
-- What is tried again for another reason holds a sweep back much sooner: counted apart, for no claim shall pass over those.
create index work_failed on autofill.work (collection_id, job_type) where state = 'delayed' and waiting is null;
