insert into autofill.rejected (collection_id, batch_id, sync, line, reason, raw, fields, source)
select %(collection_id)s, %(batch_id)s, %(sync)s, r.line, r.reason, r.raw, r.fields, r.source
from unnest(%(lines)s::bigint[], %(reasons)s::text[], %(raws)s::text[], %(fields)s::jsonb[], %(sources)s::text[])
    as r (line, reason, raw, fields, source);
