-- An example for each column × batch × class of error in which cells of a dispatch ended and still are. Reads its
-- completions, one for each finalize × batch × column × outcome, and no more cells than it returns.
select batch.key as batch, example.column_id, example.outcome as error_class, example.row_id, cell.error
from (
    select distinct on (column_id, batch_id, outcome) collection_id, batch_id, column_id, outcome, row_ids[1] as row_id
    from autofill.completion
    where dispatch_id = %(dispatch_id)s and outcome = any(%(outcomes)s)
    order by column_id, batch_id, outcome
    limit %(limit)s
) as example
join autofill.batch on batch.collection_id = example.collection_id and batch.id = example.batch_id
join autofill.cell on cell.collection_id = example.collection_id and cell.row_id = example.row_id
    and cell.column_id = example.column_id and cell.error_class = example.outcome
order by batch.id, example.column_id, example.outcome;
