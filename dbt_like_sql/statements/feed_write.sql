insert into autofill.feed (collection_id, url, version, etag, last_modified, digest)
values (%(collection_id)s, %(url)s, %(version)s, %(etag)s, %(last_modified)s, %(digest)s)
on conflict (collection_id, url) do update set version = excluded.version, etag = excluded.etag,
    last_modified = excluded.last_modified, digest = excluded.digest, synced_at = clock_timestamp();
