-- Namespaces in which something is held for a budget.
select distinct namespace_id from autofill.hold where lifted_at is null and reason = 'budget';
