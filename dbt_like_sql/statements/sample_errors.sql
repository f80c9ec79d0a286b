-- Rows with a cell in error of these classes and columns, from the partial index; no more than `limit`.
select distinct row_id from (
    select row_id from autofill.cell
    where collection_id = %(collection_id)s and error_class = any(%(classes)s) and column_id = any(%(columns)s)
      and error_class is not null
    limit %(limit)s
) as found;
