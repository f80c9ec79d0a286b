-- Endpoints that nobody has called before.
insert into autofill.provider (base_url, model)
select base_url, model from unnest(%(base_urls)s::text[], %(models)s::text[]) as asked (base_url, model)
order by base_url, model
on conflict (base_url, model) do nothing;
