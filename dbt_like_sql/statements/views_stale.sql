-- Collections whose typed view is missing, or is another version's: each view says in its comment whose it is.
select id from autofill.collection
where version > 0 and not exists (
    select from pg_class
    where relnamespace = to_regnamespace('autofill_views') and relkind = 'v'
      and obj_description(pg_class.oid, 'pg_class') = 'collection ' || collection.id || ', version ' || version
)
order by id;
