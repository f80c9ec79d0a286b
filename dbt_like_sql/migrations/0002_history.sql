-- People's edits, and how they are taken back.

-- One tuple a cell that a person's change touched: what the person's side of it was before. `was_set` false: there was
-- none, and the AI's value (or the loaded one) was shown.
create table autofill.history (
    id             bigint generated always as identity,
    collection_id  int not null,
    row_id         bigint not null,
    column_id      smallint not null,
    dispatch_id    bigint not null,                -- the change it was a part of: its reason and actor are there
    was_set        boolean not null,
    was            jsonb,
    now_set        boolean not null,
    now            jsonb,
    changed_at     timestamptz not null default clock_timestamp()
);
-- Kept for ever: it is what people did, and undo needs the latest of each cell.
create unique index history_cell on autofill.history (collection_id, row_id, column_id, id);
create index history_dispatch on autofill.history (dispatch_id);

-- The change that this one takes back: an undo's is a person's change, a redo's is an undo.
alter table autofill.dispatch add column reverts bigint references autofill.dispatch;
create index dispatch_reverts on autofill.dispatch (reverts) where reverts is not null;
-- A person's changes, latest first: what undo and redo look through.
create index dispatch_changes on autofill.dispatch (collection_id, actor, id desc)
    where reason in ('edit', 'reset', 'undo', 'redo');
