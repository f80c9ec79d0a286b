-- Since when the current version's schedules are what they are: of each column of mode cron, and (column 0) of what fills
-- the collection. The first of the latest versions without another schedule in between.
with current_version as (
    select collection.id as collection_id, collection.version as number from autofill.collection
    where collection.id = %(collection_id)s
),
schedule as (
    select column_id, mode, definition -> 'schedule' as schedule, version
    from autofill.definition where collection_id = %(collection_id)s
    union all
    select 0, case when loading -> 'refresh' is null then 'never' else 'cron' end, loading -> 'refresh', number
    from autofill.version where collection_id = %(collection_id)s
)
select held.column_id, held.schedule, min(version.created_at) as since
from current_version
join schedule held on held.version = current_version.number and held.mode = 'cron' and held.schedule is not null
join autofill.version on version.collection_id = current_version.collection_id
where version.number > coalesce((
    select max(other.number) from autofill.version other
    left join schedule was on was.version = other.number and was.column_id = held.column_id
    where other.collection_id = current_version.collection_id
      and (was.mode is distinct from 'cron' or was.schedule is distinct from held.schedule)), 0)
group by held.column_id, held.schedule;
