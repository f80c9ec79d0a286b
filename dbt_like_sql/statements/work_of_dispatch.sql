-- Rows whose work a dispatch owns, a batch of them, in key order.
select collection_id, row_id from (
    select collection_id, row_id from autofill.work where dispatch_id = %(dispatch_id)s
    union
    select collection_id, row_id from autofill.work where owners is not null and owners @> array[%(dispatch_id)s::bigint]
) as owned
where row_id + 0 > %(after)s  -- not by the primary key, which does not begin with it
order by collection_id, row_id
limit %(limit)s;
