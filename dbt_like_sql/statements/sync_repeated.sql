-- Lines whose key an earlier line of the snapshot has: they go, and are told.
with repeated as materialized (
    select jsonb_build_array(inputs -> %(key_1)s, inputs -> %(key_2)s, inputs -> %(key_3)s, inputs -> %(key_4)s) as key,
        min(line) as first
    from autofill.incoming
    where collection_id = %(collection_id)s and sync = %(sync)s
    group by 1
    having count(*) > 1
)
delete from autofill.incoming using repeated
where collection_id = %(collection_id)s and sync = %(sync)s and line <> repeated.first
  and jsonb_build_array(inputs -> %(key_1)s, inputs -> %(key_2)s, inputs -> %(key_3)s, inputs -> %(key_4)s) = repeated.key
returning line, repeated.first, inputs;
