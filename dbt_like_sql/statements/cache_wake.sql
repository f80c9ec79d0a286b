-- Rows that wait for calls that have just ended are due: all of them where there is an answer, else one, to make the call.
-- Some of them at a time, and none that somebody holds: those poll. (Fingerprints of another namespace may be equal: a
-- row of it is woken in vain.)
with due as materialized (
    select waiting.*, ended.number from unnest(%(fingerprints)s::bytea[], %(most)s::int[]) with ordinality
        as ended (fingerprint, most, number)
    cross join lateral (
        select collection_id, row_id from autofill.work
        where state = 'delayed' and awaits = ended.fingerprint and not deferred
        limit ended.most
        for update skip locked
    ) as waiting
),
woken as (
    update autofill.work set state = 'queued', available_at = null, queued_at = clock_timestamp(), awaits = null
    from unnest(array(select collection_id from due), array(select row_id from due)) as woken (collection_id, row_id)
    where work.collection_id = woken.collection_id and work.row_id = woken.row_id
)
select number, count(*) as rows from due group by number;
