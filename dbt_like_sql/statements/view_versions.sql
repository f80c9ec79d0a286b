-- The versions that defined each column of a version as that version does: cells computed by them are current under it.
select now.column_id, array_agg(past.version order by past.version) as versions
from autofill.definition as now
join autofill.definition as past
    on past.collection_id = now.collection_id and past.column_id = now.column_id and past.hash = now.hash
where now.collection_id = %(collection_id)s and now.version = %(number)s
group by now.column_id;
