-- What is kept beside an answer and is no part of it: where a page came from and when, what proves a claim. Nothing that
-- reads the column sees it, so it may change with every call and make nothing due.
alter table autofill.cell add column details jsonb;
alter table autofill.answer add column details jsonb;  -- of the answer that was replaced
alter table autofill.cache add column details jsonb;   -- of the call that brought the entry
