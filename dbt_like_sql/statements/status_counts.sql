select column_id, status, count(*) as cells from autofill.cell_status
where collection_id = %(collection_id)s
group by column_id, status
order by column_id, status;
