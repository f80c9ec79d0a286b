-- Dispatches can be canceled, paused and resumed.

alter table autofill.dispatch add column canceled_at timestamptz, add column paused_at timestamptz;
-- On the sweep too, for the indexes of the claim and of what people read.
alter table autofill.sweep add column paused boolean not null default false,
    add column canceled boolean not null default false;
drop index autofill.sweep_open;
create index sweep_open on autofill.sweep (collection_id, job_type, id) where closed_at is null and not paused;
-- Sweeps that have something to say of rows they have not come to.
create index sweep_ahead on autofill.sweep (collection_id) where closed_at is null or canceled;

-- Whether something moved, beside what was asked for by name: cancel takes back only the latter. Code that does not know
-- the column leaves it true, and its work is then never dropped.
alter table autofill.work add column cascade boolean not null default true;

-- The signal of the latest demand for the cell that was canceled before it was answered.
alter table autofill.cell add column canceled bigint not null default 0;
