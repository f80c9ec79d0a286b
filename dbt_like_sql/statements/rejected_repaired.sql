update autofill.rejected set repaired_at = clock_timestamp()
where collection_id = %(collection_id)s and id = any(%(ids)s::bigint[]) and repaired_at is null;
