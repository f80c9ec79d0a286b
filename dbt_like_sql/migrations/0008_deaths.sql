-- Cells that kill their worker are found and set aside.

-- How many workers have died with the row in flight: its calls, and all others there, are suspects. Which of them it was
-- is found by computing suspects apart, never by this count.
alter table autofill.work add column deaths smallint not null default 0;
