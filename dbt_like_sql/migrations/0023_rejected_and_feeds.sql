-- Lines that did not fit, to be repaired and loaded again. Of a batch or of a sync, and kept for as long as that.
create table autofill.rejected (
    id             bigint generated always as identity primary key,
    collection_id  int not null references autofill.collection,
    batch_id       int,
    sync           bigint,
    line           bigint not null,
    reason         text not null,
    raw            text not null,                  -- as it stands in the source; its beginning where it is long
    fields         jsonb,                          -- column id -> text, as in a CSV; null: it could not be taken apart
    repaired_at    timestamptz,                    -- it came in by a repair
    check ((batch_id is null) <> (sync is null)),
    foreign key (collection_id, batch_id) references autofill.batch on delete cascade,
    foreign key (collection_id, sync) references autofill.sync on delete cascade
);
create index rejected_collection on autofill.rejected (collection_id, id);
create index rejected_batch on autofill.rejected (collection_id, batch_id);
create index rejected_sync on autofill.rejected (collection_id, sync);

-- What a feed was when it was last synced: a server says by these that it has not changed since, and sends no body. Of the
-- version that its entries were read for: another one may have columns that they were not read into.
create table autofill.feed (
    collection_id  int not null references autofill.collection,
    url            text not null,
    version        int not null,
    etag           text,
    last_modified  text,
    digest         bytea not null,                 -- SHA-256 of its body
    synced_at      timestamptz not null default clock_timestamp(),
    primary key (collection_id, url)
);
