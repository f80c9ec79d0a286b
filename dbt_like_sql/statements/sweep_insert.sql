-- One cursor a contiguous range of rows.
insert into autofill.sweep (dispatch_id, collection_id, job_type, cursor, last_row)
select %(dispatch_id)s, %(collection_id)s, %(job_type)s, scope.first_row - 1, scope.last_row
from unnest(%(first_rows)s::bigint[], %(last_rows)s::bigint[]) as scope (first_row, last_row);
