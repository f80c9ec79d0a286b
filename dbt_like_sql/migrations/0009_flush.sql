-- A batch of answers whose commit went through, and the answer to that was lost, is known when it comes again.

-- The last batch that each worker has stored. One tuple a worker, written by its one finalizer: nobody waits for it.
create table autofill.flush (
    worker_id  uuid primary key,
    number     bigint not null
) with (fillfactor = 30, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);
