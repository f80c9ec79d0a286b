-- The actor's latest undo that has not been taken back, unless the actor has changed something since.
select id from autofill.dispatch
where collection_id = %(collection_id)s and actor = %(actor)s and reason = 'undo'
  and not exists (select from autofill.dispatch as later where later.reverts = dispatch.id)
  and not exists (select from autofill.dispatch as later
                  where later.collection_id = %(collection_id)s and later.actor = %(actor)s
                    and later.reason in ('edit', 'reset') and later.id > dispatch.id)
order by id desc
limit 1;
