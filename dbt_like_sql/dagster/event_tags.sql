-- The tags of events that have been deleted.
delete from asset_event_tags where event_id = any(:ids);
