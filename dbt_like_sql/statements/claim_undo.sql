-- A claim whose answer never reached its worker: nobody has visited these rows, and nobody else would give them back.
update autofill.work
set state = 'queued', worker_id = null, claim = null, dirty = false, computing = null, slots = 1
where worker_id = %(worker_id)s and claim = %(claim)s and state = 'computing';
