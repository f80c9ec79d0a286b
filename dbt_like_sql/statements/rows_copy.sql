copy autofill.row (collection_id, row_id, batch_id, inputs) from stdin;
