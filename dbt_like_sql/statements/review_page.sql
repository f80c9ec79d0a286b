-- Answers that wait for review, by row: of some columns, some ranges of rows (null: all), a value (null: any), behind a cell.
-- What a person has overridden waits for nobody. Read by the index on error classes.
select cell.row_id, cell.column_id, cell.ai_value as value, cell.held -> 'accepted' as accepted, cell.model, cell.version,
    cell.computed_at, cell.details
from autofill.cell
join autofill.row on row.collection_id = cell.collection_id and row.row_id = cell.row_id and row.deleted_at is null
where cell.collection_id = %(collection_id)s and cell.error_class = 'proposed' and not cell.user_set
  and cell.column_id = any(%(columns)s::smallint[])
  and (%(first_rows)s::bigint[] is null or exists (
      select from unnest(%(first_rows)s::bigint[], %(last_rows)s::bigint[]) as range (first, last)
      where cell.row_id between range.first and range.last))
  and (%(value)s::jsonb is null or cell.ai_value = %(value)s::jsonb)
  and (cell.row_id, cell.column_id) > (%(after_row)s, %(after_column)s)
order by cell.row_id, cell.column_id
limit %(limit)s;
