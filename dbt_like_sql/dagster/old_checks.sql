-- Check evaluations that a newer one replaces, of these assets and older than `before`: some of them.
delete from asset_check_executions where id in (
    select old.id
    from asset_check_executions as old
    where old.asset_key = any(:assets) and old.create_timestamp < :before
        and exists (
            select from asset_check_executions as new
            where new.asset_key = old.asset_key and new.check_name = old.check_name
                and new.partition is not distinct from old.partition and new.id > old.id
        )
    limit :limit
);
