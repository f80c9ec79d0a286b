-- A contiguous range of row ids. A load that fails leaves a gap, which nothing minds.
update autofill.collection set next_row = next_row + %(rows)s, next_batch = next_batch + 1
where id = %(collection_id)s
returning next_row - %(rows)s as first_row, next_batch - 1 as batch_id;
