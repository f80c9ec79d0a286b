-- The schema's number, and the oldest code that may work with it.
select autofill_schema.version_num::int as schema, schema_range.oldest_code
from public.autofill_schema, autofill.schema_range;
