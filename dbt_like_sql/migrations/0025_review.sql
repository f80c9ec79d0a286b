-- Answers that people look at before they are shown.

-- Not null while the AI's answer has not been accepted: {"accepted": the answer that was, if there was one}. Its error class
-- is then 'proposed' (or 'rejected', or what a later call came to), so that nothing shows it, code that knows of no
-- review included. An answer equal to the accepted one is shown without another review.
alter table autofill.cell add column held jsonb;

-- What people decided of proposed answers. Kept for ever, as their edits are; the dispatch has who it was.
create table autofill.decision (
    id             bigint generated always as identity,
    collection_id  int not null,
    row_id         bigint not null,
    column_id      smallint not null,
    dispatch_id    bigint not null,
    accepted       boolean not null,
    value          jsonb,                          -- the answer that it was about
    why            text,                           -- as the person who rejected it said
    version        int,                            -- of that answer, with its model
    model          text,
    decided_at     timestamptz not null default clock_timestamp()
);
create unique index decision_cell on autofill.decision (collection_id, row_id, column_id, id);
create index decision_latest on autofill.decision (collection_id, id);
