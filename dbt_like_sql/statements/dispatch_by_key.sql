select id from autofill.dispatch where key = %(key)s;
