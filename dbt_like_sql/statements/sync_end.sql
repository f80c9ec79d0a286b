update autofill.sync set ended_at = clock_timestamp(), inserted = %(inserted)s, updated = %(updated)s,
    restored = %(restored)s, deleted = %(deleted)s
where collection_id = %(collection_id)s and number = %(sync)s;
