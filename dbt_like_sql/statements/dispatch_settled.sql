-- The rows of a pause or a resume are as it wants them; unless another one has begun meanwhile.
update autofill.dispatch set unsettled_at = null where id = %(dispatch_id)s and unsettled_at = %(unsettled_at)s;
