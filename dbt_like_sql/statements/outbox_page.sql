-- Whose completions come next behind a cursor, in the order of `completions_since`; and where the page ends.
with page as materialized (
    select xid, id, dispatch_id from autofill.completion
    where (xid, id) > (%(xid)s::xid8, %(id)s) and xid < pg_snapshot_xmin(pg_current_snapshot())
    order by xid, id
    limit %(limit)s
)
select xid::text as xid, id, (select count(*) from page) as completions,
    array(select distinct dispatch_id from page) as dispatches
from page
order by page.xid desc, id desc
limit 1;
