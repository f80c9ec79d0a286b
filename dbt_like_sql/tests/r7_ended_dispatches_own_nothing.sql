-- R7: a dispatch that has ended has no open sweep, no hole and no work.
select dispatch.id
from {{ source('autofill', 'dispatch') }}
where dispatch.ended_at is not null and (
    exists (select from {{ source('autofill', 'sweep') }} where sweep.dispatch_id = dispatch.id and closed_at is null)
    or exists (
        select from {{ source('autofill', 'sweep_hole') }}
        join {{ source('autofill', 'sweep') }} on sweep.id = sweep_hole.sweep_id
        where sweep.dispatch_id = dispatch.id and not sweep.canceled
    )
    or exists (
        select from {{ source('autofill', 'work') }}
        where work.dispatch_id = dispatch.id or work.owners @> array[dispatch.id]
    )
)
