-- Answers whose review has taken longer than their column says, with what is to happen then; no more than `limit`.
select cell.collection_id, cell.row_id, cell.column_id, cell.ai_value as value, cell.held -> 'accepted' as accepted,
    cell.model, cell.version, cell.computed_at, cell.details, definition.definition -> 'review' ->> 'then' as outcome
from autofill.definition
join autofill.collection on collection.id = definition.collection_id and collection.version = definition.version
join autofill.cell on cell.collection_id = definition.collection_id and cell.error_class = 'proposed'
    and cell.column_id = definition.column_id
join autofill.row on row.collection_id = cell.collection_id and row.row_id = cell.row_id and row.deleted_at is null
where definition.definition -> 'review' ->> 'then' in ('accept', 'reject') and not cell.user_set
  and cell.computed_at < clock_timestamp() - (definition.definition -> 'review' ->> 'within')::float8 * interval '1 second'
order by cell.collection_id, outcome, cell.row_id, cell.column_id
limit %(limit)s;
