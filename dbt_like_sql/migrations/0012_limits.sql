-- Limits beside a collection's cap: caps of namespaces and in all, a namespace's weight, and what may be asked for.
-- Set live by `autofill limits`; null: no limit.

alter table autofill.namespace
    add column cap int check (cap > 0),            -- slots in flight at most, of all its collections (R4)
    add column weight int not null default 1 check (weight between 1 and 1000),  -- its share against other namespaces'
    add column dispatches int default 300 check (dispatches between 1 and 10000);  -- a second
alter table autofill.collection
    add column dispatches int default 100 check (dispatches between 1 and 10000),
    add column backlog bigint default 2000000 check (backlog > 0);  -- cells asked for row by row that may wait

-- One tuple: what holds for everything.
create table autofill.limits (cap int check (cap > 0));
insert into autofill.limits values (50000);

-- A collection, and a namespace (collection_id 0), has as many passes as it may dispatch a second. A dispatch takes one of
-- each in its own transaction; one that is taken, or was less than a second ago, is passed over. So the count is right
-- however many ask at once, nobody waits for anybody's commit, and what is rolled back was never counted. (One counter
-- row would be held through each commit: 32 clients fell to 90 transactions a second by one.)
create table autofill.pass (
    namespace_id   int not null,
    collection_id  int not null,
    number         int not null,
    used_at        timestamptz not null default '-infinity',
    primary key (namespace_id, collection_id, number)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0);

-- By trigger: programs that know nothing of passes make collections too.
create function autofill.passes_of_namespace() returns trigger language plpgsql as $$
begin
    insert into autofill.pass (namespace_id, collection_id, number)
    select new.id, 0, number from generate_series(1, new.dispatches) as number on conflict do nothing;
    return null;
end $$;
create function autofill.passes_of_collection() returns trigger language plpgsql as $$
begin
    insert into autofill.pass (namespace_id, collection_id, number)
    select new.namespace_id, new.id, number from generate_series(1, new.dispatches) as number on conflict do nothing;
    return null;
end $$;
create trigger passes after insert or update of dispatches on autofill.namespace
    for each row execute function autofill.passes_of_namespace();
create trigger passes after insert or update of dispatches on autofill.collection
    for each row execute function autofill.passes_of_collection();
update autofill.namespace set dispatches = dispatches;
update autofill.collection set dispatches = dispatches;

-- Cells that a dispatch adds to the backlog: those it asks for row by row. A sweep, and an edit, counts as one.
alter table autofill.dispatch add column backlog bigint not null default 1;
create index dispatch_waiting on autofill.dispatch (collection_id, id) where ended_at is null;

-- The backlog as the janitor last counted it, of collections where counting takes time; dispatches since are added.
create table autofill.backlog (
    collection_id  int primary key,
    cells          bigint not null,
    through        bigint not null                 -- the last dispatch that was counted
);
