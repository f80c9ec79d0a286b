-- After every claim of this worker that the server still had on its way: they hold the worker's tuple for share.
select id from autofill.worker where id = %(worker_id)s for no key update;
