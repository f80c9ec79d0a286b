-- Of each lane (one a collection) choose and lock the next rows of its oldest open sweep, behind `after`, that no other
-- claimer is walking: holes first, then those behind the cursor. Nothing waits; a row that somebody holds comes back with
-- is_locked = false. Rows are chosen before they are locked, so that a row skipped is a row known.
-- A sweep limited to some cells (only_if) examines a fixed window of row ids and passes it even if it finds nothing; one
-- limited to errors finds them by their index. What it finds by numbers are candidates: a plan decides.
with lane as (
    select * from unnest(%(collections)s::int[], %(job_types)s::text[], %(slots)s::int[], %(afters)s::bigint[])
        as l (collection_id, job_type, slots, after)
),
walked as materialized (
    select oldest.*, lane.slots from lane cross join lateral (
        select sweep.id, sweep.collection_id, dispatch_id, cursor, last_row, only_if, columns, collection.version,
            only_if is not null and not only_if && array['empty', 'outdated', 'not_found'] as only_errors,
            only_if is not null and only_if && array['empty', 'outdated', 'not_found'] as is_windowed,
            case when only_if && array['empty', 'outdated', 'not_found'] then least(last_row, cursor + %(window)s) else last_row
            end as examined
        from autofill.sweep
        join autofill.dispatch on dispatch.id = sweep.dispatch_id
        join autofill.collection on collection.id = sweep.collection_id
        where sweep.collection_id = lane.collection_id and job_type = lane.job_type and closed_at is null
          and not paused and sweep.id > lane.after
        order by sweep.id
        limit 1
        for update of sweep skip locked
    ) as oldest
),
wanted as materialized (
    -- what a windowed sweep examines: each column, what it reads, and the versions that compute it as it is computed now
    select walked.id as sweep_id, now.column_id, now.depends_on, array(
            select known.version from autofill.definition as known
            where known.collection_id = now.collection_id and known.column_id = now.column_id and known.hash = now.hash
        ) as versions
    from walked
    cross join unnest(walked.columns) as named
    join autofill.definition as now on now.collection_id = walked.collection_id and now.version = walked.version
        and now.column_id = named
    where walked.is_windowed
)
select walked.id as sweep_id, walked.collection_id, walked.dispatch_id, walked.cursor, walked.examined,
    walked.slots, chosen.row_id, chosen.is_hole, chosen.is_locked,
    chosen.batch_id, chosen.change, chosen.inputs, chosen.deleted_at is not null as deleted
from walked
cross join lateral (
    select count(*) as count from (
        select from autofill.sweep_hole where sweep_hole.sweep_id = walked.id limit walked.slots) as missed
) as holes
left join lateral (
    select candidate.*, held.row_id is not null as is_locked, held.batch_id, held.change, held.inputs, held.deleted_at
    from (
        (
            select row_id, true as is_hole from autofill.sweep_hole
            where sweep_id = walked.id order by row_id limit walked.slots
        )
        union all
        (
            select row.row_id, false from autofill.row
            where walked.only_if is null
              and row.collection_id = walked.collection_id and row.deleted_at is null
              and row.row_id > walked.cursor and row.row_id <= walked.last_row
            order by row.row_id
            limit walked.slots - holes.count
        )
        union all
        (
            -- the window's rows and cells, read once each and brought together by sorting: row by row, with a probe for
            -- the cell, its inputs and its definition, a million took 30 s, with other work beside it, and not two
            select distinct found.row_id, false
            from wanted
            cross join lateral (
                select row_id from (
                    select row.row_id, row.change as row_change, null::smallint as column_id, null::bigint as change,
                        null::bigint as read_change, null::int as version, null::text as error_class,
                        null::boolean as is_computed, null::boolean as is_answered
                    from autofill.row
                    where row.collection_id = walked.collection_id and row.deleted_at is null
                      and row.row_id > walked.cursor and row.row_id <= walked.examined
                    union all
                    select cell.row_id, null, cell.column_id, cell.change, cell.read_change, cell.version,
                        cell.error_class, cell.fingerprint is not null, cell.ai_value is not null
                    from autofill.cell
                    where cell.collection_id = walked.collection_id
                      and cell.row_id > walked.cursor and cell.row_id <= walked.examined
                      and (cell.column_id = wanted.column_id or cell.column_id = any(wanted.depends_on))
                ) as examined
                group by row_id
                having max(row_change) is not null and case
                    when not coalesce(bool_or(is_computed) filter (where column_id = wanted.column_id), false)
                    then 'empty' = any(walked.only_if)
                    else bool_or('error:' || error_class = any(walked.only_if))
                            filter (where column_id = wanted.column_id)
                        or ('not_found' = any(walked.only_if)
                            and bool_or(error_class is null and not is_answered)
                                filter (where column_id = wanted.column_id))
                        or ('outdated' = any(walked.only_if) and (
                            bool_or(not version = any(wanted.versions)) filter (where column_id = wanted.column_id)
                            or min(read_change) filter (where column_id = wanted.column_id)
                                < greatest(max(row_change), max(change) filter (where column_id = any(wanted.depends_on)))
                        ))
                    end
            ) as found
            where wanted.sweep_id = walked.id
            order by found.row_id
            limit walked.slots - holes.count
        )
        union all
        (
            select distinct cell.row_id, false from autofill.cell
            where walked.only_errors
              and cell.collection_id = walked.collection_id and cell.error_class is not null
              and cell.error_class = any(array(select substr(condition, 7) from unnest(walked.only_if) as condition))
              and cell.column_id = any(walked.columns)
              and cell.row_id > walked.cursor and cell.row_id <= walked.last_row
            order by cell.row_id
            limit walked.slots - holes.count
        )
    ) as candidate
    -- what a visit reads of a row is read as it is locked: locking takes a row's latest state, not the snapshot's;
    -- joined to what the others hold, one row after the other: the planner expects few of them, and would compare each
    -- with each
    left join lateral (
        select row.row_id, row.batch_id, row.change, row.inputs, row.deleted_at from autofill.row
        where row.collection_id = walked.collection_id and row.row_id = candidate.row_id
        for no key update skip locked
    ) as held on true
) as chosen on true
order by walked.collection_id, chosen.row_id;
