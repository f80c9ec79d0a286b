-- Of these, the lines that are not repaired yet.
select id from autofill.rejected
where collection_id = %(collection_id)s and id = any(%(ids)s::bigint[]) and repaired_at is null;
