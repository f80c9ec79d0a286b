-- R5: what is held for a person's decision shows nothing, by its error class; and what waits for one is held.
select collection_id, row_id, column_id, error_class
from {{ source('autofill', 'cell') }}
where (held is not null and error_class is null)
   or (held is null and error_class in ('proposed', 'rejected'))
