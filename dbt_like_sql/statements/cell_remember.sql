-- A force that waits for its input leaves its signal with the cell, and counts when the input comes. The row's work is
-- locked, as finalize leaves it.
insert into autofill.cell as cell (collection_id, row_id, column_id, demanded)
values (%(collection_id)s, %(row_id)s, %(column_id)s, %(forced)s)
on conflict (collection_id, row_id, column_id) do update set demanded = greatest(cell.demanded, excluded.demanded);
