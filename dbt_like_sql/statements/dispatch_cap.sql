-- What a dispatch may cost; null takes the cap away. Says whether it was paused for the one it had.
update autofill.dispatch set max_cost = %(max_cost)s
where id = %(dispatch_id)s and ended_at is null
returning id, collection_id, paused_at is not null and pause_reason is not null as is_capped;
