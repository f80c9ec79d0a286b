-- Whether it is still this sync's turn; under the lock of the collection's syncs.
select not exists (
    select from autofill.sync where collection_id = %(collection_id)s and number > %(sync)s
) as is_mine;
