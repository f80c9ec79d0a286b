-- The actor's latest change of the collection that has not been taken back.
select id from autofill.dispatch
where collection_id = %(collection_id)s and actor = %(actor)s and reason in ('edit', 'reset', 'redo')
  and not exists (select from autofill.dispatch as later where later.reverts = dispatch.id)
order by id desc
limit 1;
