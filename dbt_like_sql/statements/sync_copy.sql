copy autofill.incoming (collection_id, sync, line, inputs, missing) from stdin;
