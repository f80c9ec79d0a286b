-- All is written. What earlier syncs had rejected is overtaken by what this one has: all of it by a whole snapshot, else
-- that of the same source.
with overtaken as (
    delete from autofill.rejected using autofill.sync as earlier
    where rejected.collection_id = %(collection_id)s and rejected.sync < %(sync)s and repaired_at is null
      and earlier.collection_id = rejected.collection_id and earlier.number = rejected.sync
      and (%(whole)s or earlier.source = %(source)s)
)
update autofill.sync set ended_at = clock_timestamp(), inserted = %(inserted)s, updated = %(updated)s,
    restored = %(restored)s, deleted = %(deleted)s
where collection_id = %(collection_id)s and number = %(sync)s;
