-- A dispatch ends once: its sweeps are closed, without holes, and no work is owned, in one snapshot (R7). Run after
-- the release has committed, so that of two releases that each saw the other's work, the later sees none.
update autofill.dispatch set ended_at = clock_timestamp()
where id = any(%(dispatches)s) and ended_at is null
  and not exists (select from autofill.sweep where sweep.dispatch_id = dispatch.id and closed_at is null)
  and not exists (select from autofill.work where work.dispatch_id = dispatch.id)
  and not exists (select from autofill.work where owners is not null and owners @> array[dispatch.id])
returning id;
