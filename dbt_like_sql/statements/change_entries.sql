-- The cells of a change, and for each who has changed it since: an undo applies only to what is still the latest. What
-- has been taken back does not count, nor the taking back of something later.
select entry.row_id, entry.column_id, entry.was_set, entry.was, later.actor as overtaken_by, later.changed_at as overtaken_at
from autofill.history as entry
left join lateral (
    select dispatch.actor, newer.changed_at
    from autofill.history as newer join autofill.dispatch on dispatch.id = newer.dispatch_id
    where newer.collection_id = entry.collection_id and newer.row_id = entry.row_id
      and newer.column_id = entry.column_id and newer.id > entry.id
      and not coalesce(dispatch.reverts > entry.dispatch_id, false)
      and not exists (select from autofill.dispatch as undone where undone.reverts = dispatch.id)
    order by newer.id desc
    limit 1
) as later on true
where entry.dispatch_id = %(dispatch_id)s
order by entry.row_id, entry.column_id;
