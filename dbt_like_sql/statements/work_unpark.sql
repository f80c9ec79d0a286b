update autofill.work set state = 'queued'
where work.collection_id = %(collection_id)s and work.row_id = any(%(rows)s) and work.state = 'parked';
