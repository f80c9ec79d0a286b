-- Runs of this code location that are over, were so before `before`, and of which no materialization is left: some of them.
select run_id
from runs
join run_tags using (run_id)
where run_tags.key = '.dagster/code_location' and run_tags.value = :location
    and runs.status in ('SUCCESS', 'FAILURE', 'CANCELED') and runs.update_timestamp < :before
    and not exists (
        select from event_logs
        where event_logs.run_id = runs.run_id and dagster_event_type = 'ASSET_MATERIALIZATION'
    )
order by runs.id
limit :limit;
