-- R5: only a person's edit sets a user value, and it says who and when.
select collection_id, row_id, column_id
from {{ source('autofill', 'cell') }}
where user_set <> (user_actor is not null) or user_set <> (user_at is not null)
