-- What people read of every computed cell: one row a row × computed column of the current version. Status is derived
-- here and nowhere else. `outdated` goes by change numbers: a candidate that a plan finds current is refreshed by it.
select
    collection.id as collection_id,
    row.row_id,
    row.batch_id,
    definition.column_id,
    definition.name,
    case when cell.user_set then cell.user_value when cell.error_class is null then cell.ai_value end as value,
    case
        when cell.user_set then 'overridden'
        when definition.column_id = any(work.computing) then 'computing'
        when work.demand ? definition.column_id::text
            or (work.row_id is not null and definition.mode = 'on_change' and behind.outdated)
            then case when work.state = 'parked' or is_held then 'paused'
                      when work.waiting ? definition.column_id::text
                           -- all else that was due is computed by now: this waits for what waits for a file
                           or (work.waiting is not null and work.state = 'delayed'
                               and not work.attempts ? definition.column_id::text) then 'waiting'
                      else 'queued' end
        when ahead.state in ('queued', 'paused') then case when is_held then 'paused' else ahead.state end
        -- reads an answer under review, or what will be computed from it: not before that has ended
        when (definition.mode = 'on_change' and behind.outdated or cell.demanded > cell.called)
            and exists (select from {{ source('autofill', 'cell') }} as proposed
                        where proposed.collection_id = collection.id and proposed.error_class = 'proposed')
            and exists (
                with recursive above as (
                    select unnest(definition.depends_on) as column_id
                    union
                    select unnest(source.depends_on)
                    from above
                    join {{ source('autofill', 'definition') }} as source
                        on source.collection_id = collection.id and source.version = collection.version
                        and source.column_id = above.column_id and source.mode = 'on_change'
                    left join {{ source('autofill', 'cell') }} as hiding
                        on hiding.collection_id = row.collection_id and hiding.row_id = row.row_id
                        and hiding.column_id = above.column_id
                    where not coalesce(hiding.user_set, false)
                )
                select from above
                join {{ source('autofill', 'cell') }} as input
                    on input.collection_id = row.collection_id and input.row_id = row.row_id
                    and input.column_id = above.column_id
                where input.error_class = 'proposed' and not input.user_set
            ) then 'waiting'
        when cell.error_class in ('blocked', 'proposed', 'rejected') then cell.error_class
        when cell.error_class is not null then 'error'
        when behind.outdated and (cell.canceled > cell.called or ahead.state = 'canceled') then 'canceled'
        when cell.computed_at is null then 'empty'
        when behind.outdated then 'outdated'
        when cell.ai_value is null and cell.details ? 'not_found' then 'not_found'
        else 'ready'
    end as status,
    cell.error_class,
    cell.error,
    cell.model,
    cell.version,
    cell.computed_at,
    -- a person's value whose inputs have changed since it was given
    coalesce(cell.user_set and (row.change > cell.change or exists (
        select from {{ source('autofill', 'cell') }} as input
        where input.collection_id = row.collection_id and input.row_id = row.row_id
          and input.column_id = any(definition.depends_on) and input.change > cell.change
    )), false) as inputs_moved,
    -- beside an answer that is shown, or waits for review: where it came from
    case when not coalesce(cell.user_set, false) and coalesce(cell.error_class, 'proposed') = 'proposed'
         then cell.details end as details,
    -- an answer that waits for review
    case when not cell.user_set and cell.error_class = 'proposed' then cell.ai_value end as proposed
from {{ source('autofill', 'collection') }}
join {{ source('autofill', 'row') }} on row.collection_id = collection.id and row.deleted_at is null
join {{ source('autofill', 'definition') }}
    on definition.collection_id = collection.id and definition.version = collection.version
    and definition.kind is not null
left join {{ source('autofill', 'cell') }}
    on cell.collection_id = row.collection_id and cell.row_id = row.row_id
    and cell.column_id = definition.column_id
left join {{ source('autofill', 'work') }}
    on work.collection_id = row.collection_id and work.row_id = row.row_id
left join {{ source('autofill', 'definition') }} as computed_by
    on computed_by.collection_id = cell.collection_id and computed_by.version = cell.version
    and computed_by.column_id = cell.column_id
cross join lateral (
    select cell.computed_at is null
        or computed_by.hash is distinct from definition.hash
        or cell.read_change < row.change
        or exists (
            select from {{ source('autofill', 'cell') }} as input
            where input.collection_id = row.collection_id and input.row_id = row.row_id
              and input.column_id = any(definition.depends_on) and input.change > cell.read_change
        ) as outdated
) as behind
-- calls that are not made now, whoever wants them
cross join lateral (
    select exists (
        select from {{ source('autofill', 'hold') }}
        where hold.lifted_at is null and (hold.expires_at is null or hold.expires_at > clock_timestamp())
          and hold.namespace_id = collection.namespace_id and hold.job_type = definition.kind
          and (hold.collection_id is null or hold.collection_id = collection.id)
          and (hold.column_id is null or hold.column_id = definition.column_id)
    ) as is_held
) as held
-- what a sweep that has not come to the row yet, or will not any more, has to say of the cell
left join lateral (
    select case when sweep.canceled then 'canceled' when sweep.paused then 'paused' else 'queued' end as state
    from {{ source('autofill', 'sweep') }}
    join {{ source('autofill', 'dispatch') }} on dispatch.id = sweep.dispatch_id
    where sweep.collection_id = row.collection_id and (sweep.closed_at is null or sweep.canceled)
      and sweep.last_row >= row.row_id
      and (sweep.cursor < row.row_id
           or exists (select from {{ source('autofill', 'sweep_hole') }}
                      where sweep_hole.sweep_id = sweep.id and sweep_hole.row_id = row.row_id))
      and case when dispatch.columns = '{}' then definition.mode = 'on_change' and behind.outdated
               else definition.column_id = any(dispatch.columns)
                    and (behind.outdated
                         or (dispatch.signal > cell.called and (
                             (dispatch.force and definition.column_id = any(coalesce(dispatch.forced, dispatch.columns)))
                             or coalesce(cell.error_class, 'proposed') <> 'proposed'))) end
    order by sweep.canceled, sweep.paused
    limit 1
) as ahead on true
