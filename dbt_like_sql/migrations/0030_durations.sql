-- How long calls took.

-- Seconds of those of its calls that somebody else answers or that are kept in the cache; null where none were: what a
-- function takes would be measured with the wait for its thread.
alter table autofill.attempt add column seconds real[];
