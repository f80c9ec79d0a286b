-- Earlier answers of a cell, latest first.
select was, version, model, computed_at, replaced_at, dispatch_id, details from autofill.answer
where collection_id = %(collection_id)s and row_id = %(row_id)s and column_id = %(column_id)s
order by replaced_at desc
limit %(limit)s;
