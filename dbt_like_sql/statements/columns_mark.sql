-- Columns that the new version lacks are deleted, softly; those it has again are back.
update autofill.collection_column
set deleted_at = case when key = any(%(keys)s) then null else coalesce(deleted_at, clock_timestamp()) end
where collection_id = %(collection_id)s
  and (deleted_at is null) <> (key = any(%(keys)s));
