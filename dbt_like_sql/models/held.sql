-- What is held now, and why: calls of these lanes and columns are not made, and wait.
select
    hold.id,
    namespace.name as namespace,
    collection.name as collection,
    hold.job_type,
    definition.name as column_name,
    hold.reason,
    hold.message,
    hold.placed_at,
    hold.expires_at,
    hold.probe_at,
    hold.collection_id
from {{ source('autofill', 'hold') }}
join {{ source('autofill', 'namespace') }} on namespace.id = hold.namespace_id
left join {{ source('autofill', 'collection') }} on collection.id = hold.collection_id
left join {{ source('autofill', 'definition') }}
    on definition.collection_id = hold.collection_id and definition.version = collection.version
    and definition.column_id = hold.column_id
where hold.lifted_at is null and (hold.expires_at is null or hold.expires_at > clock_timestamp())
