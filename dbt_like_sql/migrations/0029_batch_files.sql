-- Files by their content: which batch one is in, and which of its rows are its own. A batch holds many small files; of a
-- file in several batches this is the first. Beside the batch's key, since a file may come again beside others.
create table autofill.batch_file (
    collection_id  int not null,
    key            text not null,                  -- of the content: that of its batches, where it came alone
    batch_id       int not null,
    name           text not null,                  -- what it was called when it came
    first_row      bigint not null,
    last_row       bigint not null,                -- first_row - 1 when it has none
    rejected_rows  bigint not null,
    primary key (collection_id, key),
    foreign key (collection_id, batch_id) references autofill.batch on delete cascade
);
create index batch_file_batch on autofill.batch_file (collection_id, batch_id);

-- The file of a rejected line, where it is one of many in its batch.
alter table autofill.rejected add column source text;
