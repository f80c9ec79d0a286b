-- Some of what nobody takes any more: entries past the time that answers are kept, which bounds every time to live.
with old as materialized (
    select ctid from autofill.cache
    where computed_at < statement_timestamp() - %(days)s * interval '1 day'
    order by computed_at
    limit %(limit)s
    for update skip locked
),
trimmed as (
    delete from autofill.cache where ctid = any(array(select ctid from old))
    returning 1
)
select count(*) as entries from trimmed;
