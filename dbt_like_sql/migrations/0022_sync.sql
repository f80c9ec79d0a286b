-- Snapshots compared with what is there, by key.

-- How rows come in: {"key": [column id, …], "delete_share": …, "feed": …}; null: nothing is declared.
alter table autofill.version add column loading jsonb;

-- One tuple a sync. Of those of a collection only the one with the highest number may write: a later one overtakes.
create table autofill.sync (
    collection_id  int not null references autofill.collection,
    number         bigint not null,
    source         text not null,
    actor          text not null,
    started_at     timestamptz not null default clock_timestamp(),
    ended_at       timestamptz,                    -- null: it goes on, or died, and the next one finishes its work
    inserted       bigint not null default 0,
    updated        bigint not null default 0,
    restored       bigint not null default 0,
    deleted        bigint not null default 0,
    primary key (collection_id, number)
);

-- The rows that a sync has deleted, for as long as they have not been restored.
create table autofill.sync_deleted (
    collection_id  int not null,
    row_id         bigint not null,
    sync           bigint not null,
    primary key (collection_id, row_id)
);
create index sync_deleted_by on autofill.sync_deleted (collection_id, sync, row_id);

-- The snapshot of a sync that goes on. Not logged: after a crash of the server the sync begins anew. Tables, not temporary
-- ones: those outlive a transaction, which a pooler of transactions does not offer.
create unlogged table autofill.incoming (
    collection_id  int not null,
    sync           bigint not null,
    line           bigint not null,
    inputs         jsonb not null,                 -- column id -> value
    missing        text[] not null,                -- ids of columns that the snapshot has and that hold nothing here
    primary key (collection_id, sync, line)
);

-- What the comparison found: `number` is the line of an insert, and the row of everything else.
create unlogged table autofill.difference (
    collection_id  int not null,
    sync           bigint not null,
    what           text not null check (what in ('insert', 'update', 'restore', 'delete')),
    number         bigint not null,
    line           bigint,
    primary key (collection_id, sync, what, number)
);
