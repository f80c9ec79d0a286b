-- Rows whose work a dispatch owns, a batch of them, in key order.
select collection_id, row_id from (
    select collection_id, row_id from autofill.work where dispatch_id = %(dispatch_id)s
    union
    select collection_id, row_id from autofill.work where owners is not null and owners @> array[%(dispatch_id)s::bigint]
) as owned
where row_id > %(after)s
order by collection_id, row_id
limit %(limit)s;
