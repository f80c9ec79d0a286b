select dispatch_id from autofill.sweep where id = %(sweep_id)s;
