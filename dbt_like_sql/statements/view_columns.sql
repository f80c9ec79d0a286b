-- The columns of a view, in order, with their types.
select attribute.attname::text as name, format_type(attribute.atttypid, attribute.atttypmod) as type
from pg_attribute as attribute
where attribute.attrelid = to_regclass(quote_ident(%(schema)s) || '.' || quote_ident(%(view)s))
  and attribute.attnum > 0 and not attribute.attisdropped
order by attribute.attnum;
