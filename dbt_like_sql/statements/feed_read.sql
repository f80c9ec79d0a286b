select etag, last_modified, digest from autofill.feed
where collection_id = %(collection_id)s and url = %(url)s and version = %(version)s;
