-- Locks these providers, in order; a statement of its own, so that the next one reads what the last holder committed.
select id from autofill.provider
where (base_url, model) in (select * from unnest(%(base_urls)s::text[], %(models)s::text[]))
order by id
for no key update;
