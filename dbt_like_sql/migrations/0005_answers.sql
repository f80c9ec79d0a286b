-- What the AI had answered before, where an answer that people saw has changed. Kept by the week, like attempts.
create table autofill.answer (
    collection_id  int not null,
    row_id         bigint not null,
    column_id      smallint not null,
    was            jsonb,
    version        int,                            -- of the answer that was replaced
    model          text,
    computed_at    timestamptz not null,           -- when that answer was given
    replaced_at    timestamptz not null default clock_timestamp(),
    dispatch_id    bigint not null                 -- what had it computed again
) partition by range (replaced_at);
create index answer_cell on autofill.answer (collection_id, row_id, column_id, replaced_at desc);
create table autofill.answer_default partition of autofill.answer default;
select autofill.partitions_ensure(array['answer']);
