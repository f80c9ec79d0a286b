-- Endpoints as people see them.
select * from autofill.provider_limits
where (%(base_url)s::text is null or base_url = %(base_url)s) and (%(model)s::text is null or model = %(model)s)
order by base_url, model;
