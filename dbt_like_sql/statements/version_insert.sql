-- A new immutable version becomes the current one.
with made as (
    insert into autofill.version (collection_id, number, hash, actor, loading)
    values (%(collection_id)s, %(number)s, %(hash)s, %(actor)s, %(loading)s)
),
defined as (
    insert into autofill.definition
        (collection_id, version, column_id, position, name, kind, mode, hash, depends_on, definition)
    select %(collection_id)s, %(number)s, d.column_id, d.position, d.name, d.kind, d.mode, d.hash,
        array(select jsonb_array_elements_text(d.depends_on)::smallint), d.definition
    from unnest(%(columns)s::smallint[], %(names)s::text[], %(kinds)s::text[], %(modes)s::text[], %(hashes)s::bytea[],
        %(depends_on)s::jsonb[], %(definitions)s::jsonb[]) with ordinality
        as d (column_id, name, kind, mode, hash, depends_on, definition, position)
)
-- a spec that names no cap leaves the one that is set
update autofill.collection set version = %(number)s, cap = coalesce(%(cap)s, cap) where id = %(collection_id)s;
