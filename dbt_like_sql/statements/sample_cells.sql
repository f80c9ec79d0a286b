-- The cells of those rows, with what their last call took.
select row_id, column_id, user_set, user_value, ai_value, fingerprint, called, demanded, change, read_change, error_class,
    details, version, model, tokens_in, tokens_out
from autofill.cell
where collection_id = %(collection_id)s and row_id = any(%(rows)s);
