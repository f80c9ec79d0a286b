select exists (select from autofill.work) as is_there;
