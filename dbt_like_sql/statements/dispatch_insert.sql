-- A dispatch, with its signal: taken here, under the lock of its row or, for a sweep, of its collection.
insert into autofill.dispatch (collection_id, signal, reason, actor, columns, force, key, total, version, reverts,
    only_if, max_cost, backlog, forced)
values (%(collection_id)s, nextval('autofill.signal'), %(reason)s, %(actor)s, %(columns)s::smallint[], %(force)s,
    %(key)s, %(total)s, %(version)s, %(reverts)s, %(only_if)s, %(max_cost)s, %(backlog)s,
    %(forced)s::smallint[])
returning id, signal;
