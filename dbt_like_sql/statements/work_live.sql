-- How many rows `work` has, as far as `limit`.
select count(*) as live from (select from autofill.work limit %(limit)s) as counted;
