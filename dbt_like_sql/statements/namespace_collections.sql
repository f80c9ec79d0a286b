-- The collections of a namespace, or of those that money is limited in; for a namespace that has none yet, nothing is spent.
select id from autofill.collection
where case when %(namespace_id)s::int is not null then namespace_id = %(namespace_id)s
           else namespace_id in (
               select namespace_id from autofill.budget
               union select namespace_id from autofill.hold where lifted_at is null and reason = 'budget')
               or id in (select collection_id from autofill.dispatch where ended_at is null and max_cost is not null) end;
