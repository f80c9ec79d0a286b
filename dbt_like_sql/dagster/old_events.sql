-- Materializations that a newer one of their asset and partition replaces, and observations, of these assets and older
-- than `before`: some of them, and their ids.
delete from event_logs where id in (
    select old.id
    from event_logs as old
    where old.asset_key = any(:assets) and old.timestamp < :before
        and (
            old.dagster_event_type = 'ASSET_OBSERVATION'
            or old.dagster_event_type = 'ASSET_MATERIALIZATION' and (
                exists (
                    select from event_logs as new
                    where new.asset_key = old.asset_key and new.partition = old.partition
                        and new.dagster_event_type = old.dagster_event_type and new.id > old.id
                )
                or old.partition is null and exists (
                    select from event_logs as new
                    where new.asset_key = old.asset_key and new.partition is null
                        and new.dagster_event_type = old.dagster_event_type and new.id > old.id
                )
            )
        )
    limit :limit
)
returning id;
