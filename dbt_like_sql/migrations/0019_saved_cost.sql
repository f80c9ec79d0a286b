-- What the calls that the cache spared would have cost, in billionths of a dollar. Null: not known.
alter table autofill.cache add column cost bigint;
alter table autofill.completion add column saved_cost bigint not null default 0;
