-- R7, mechanic 5: a sweep closes at its end and without holes, unless it was canceled.
select sweep.id
from {{ source('autofill', 'sweep') }}
where sweep.closed_at is not null and not sweep.canceled and (
    sweep.cursor < sweep.last_row
    or exists (select from {{ source('autofill', 'sweep_hole') }} where sweep_hole.sweep_id = sweep.id)
)
