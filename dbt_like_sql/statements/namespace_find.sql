select id from autofill.namespace where name = %(namespace)s;
