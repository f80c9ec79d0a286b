"""What workers do in the state machine: claim in parts, visit step by step, store late or twice, die; and janitors."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg
from hypothesis import strategies as st

from cell_engine.store import claims
from cell_engine.store.cache import wake
from cell_engine.store.claims import Token, WorkerEndedError
from cell_engine.store.results import Release, Result, end_dispatches
from cell_engine.store.upkeep import keep_up
from tests.store.visits import Visit, Worker
from tests.store.world import Pool, World, text

FAILURES = st.sampled_from(["function_error", "refused", "transient", "rate_limited"])


class Pools(World):
    def new_worker(self, number: int, job_types: Sequence[str]) -> Worker:
        return Worker(self.connections.claiming[number], self.connections.storing[number], job_types)

    # ---- workers claim

    def any_pool(self, data: st.DataObject) -> Pool:
        return self.pools[data.draw(st.integers(0, len(self.pools) - 1), label="pool")]

    def afresh(self, pool: Pool) -> None:
        pool.worker = self.new_worker(self.pools.index(pool), pool.job_types)

    def claim(self, data: st.DataObject) -> None:
        """At once; or first its slots, then its rows, then its commit."""
        pool = self.any_pool(data)
        worker = pool.worker
        slots = data.draw(st.integers(1, 4), label="slots")
        how = data.draw(st.sampled_from(["at once", "at once", "in parts", "left open"]), label="how")
        if self.busy(worker.claiming):
            return
        try:
            if worker.granted:
                granted, worker.granted = worker.granted, []
                self.take(worker, granted, how == "left open")
            elif how == "at once":
                freed, worker.freed = worker.freed, Counter()
                taken = claims.claim(worker.claiming, worker.token(), worker.job_types, slots, slots, freed)
                self.claimed(worker, taken)
            else:
                worker.granted = worker.quota(slots)
        except WorkerEndedError:
            worker.ended = True
            self.afresh(pool)

    def take(self, worker: Worker, granted: list[Any], leave_open: bool) -> None:
        token = worker.token()
        if not leave_open:
            self.claimed(worker, claims._take(worker.claiming, token, granted))
            return

        def then(commit: bool) -> None:
            if commit:
                self.claimed(worker, taken)
            elif not worker.ended:
                self.recover(worker, token.claim)

        with self.left_open(worker.claiming, then):
            taken = claims._take(worker.claiming, token, granted)

    def claimed(self, worker: Worker, claimed: claims.Claimed) -> None:
        for reading in claimed.visits:
            assert self.token_of(reading.key.row_id) == (reading.token.worker_id, reading.token.claim), "R1"
        self.visits += sorted(worker.visits(claimed), key=lambda visit: visit.key.row_id)
        end_dispatches(self.control, claimed.swept)

    def recover(self, worker: Worker, claim: int | None) -> None:
        claims.recover(worker.storing, worker.id, claim)
        worker.freed.clear()
        worker.granted = []

    def widen(self, data: st.DataObject) -> None:
        worker = self.any_pool(data).worker
        visits = {one.identity: one for one in self.visits if one.worker is worker and not one.over}
        if visits and not self.busy(worker.claiming) and not worker.granted:
            for identity in claims.widen(worker.claiming, worker.id, list(visits)):
                visits[identity].slots += 1

    def poll(self, data: st.DataObject) -> None:
        """A worker learns of news, and marks what it calls; neither ever waits."""
        worker = self.any_pool(data).worker
        visits = {one.identity: one for one in self.visits if one.worker is worker and not one.over}
        if self.busy(worker.storing):
            return
        claims.mark(worker.storing, worker.id, {one.identity: list(one.calling) for one in visits.values()})
        for identity in claims.dirty(worker.storing, worker.id):
            if identity in visits:
                for reading in claims.reread(worker.storing, worker.id, [identity]):
                    visits[identity].take(reading)

    # ---- workers visit

    def advance(self, data: st.DataObject) -> None:
        if visits := self.idle_visits():
            self.go_on(visits[data.draw(st.integers(0, len(visits) - 1), label="visit")], data)

    def go_on(self, visit: Visit, data: st.DataObject | None = None) -> None:
        """One plan of a visit; its calls start, and what needs no call is stored; or it ends."""
        steps = visit.plan(self.known(visit.reading.version))
        lease = data.draw(st.sampled_from([3600.0, 3600.0, 0.0]), label="lease") if data is not None else 3600.0
        try:
            hits = visit.start(steps, lease)
        except psycopg.errors.LockNotAvailable:
            return  # it would wait for who stores the answer just now
        for due, hit in hits:
            answered = self.answers.get((hit.fingerprint, hit.value))
            assert answered is not None, "the cache gives what no equal call has answered"
            assert answered >= due.forced, "the cache gives what is older than the demand by force"
        found = [hit for _, hit in hits] + [visit.found(one) for one in steps.found]
        if found:
            self.store(visit, found, None, data)
        elif not visit.calling:
            seconds = data.draw(st.sampled_from([0.0, 1000.0])) if data is not None else 0.0
            self.store(visit, [], visit.release(seconds=seconds), data)

    def answer(self, data: st.DataObject) -> None:
        visits = [one for one in self.idle_visits() if one.calling]
        if not visits:
            return
        visit = visits[data.draw(st.integers(0, len(visits) - 1), label="visit")]
        calling = st.lists(st.sampled_from(sorted(visit.calling)), min_size=1, unique=True)
        results = []
        for column in data.draw(calling, label="columns"):
            how = data.draw(st.sampled_from(["value"] * 5 + ["same", "none", "error"]), label="outcome")
            if how == "error":
                failure = data.draw(FAILURES, label="failure")
                retry = failure == "rate_limited" or (failure == "transient" and data.draw(st.booleans()))
                results.append(visit.result(column, error_class=failure, error="no", retry=retry))
            else:
                value = {"value": text(visit.calling[column][0]), "same": "K", "none": None}[how]
                results.append(visit.result(column, value=value))
        self.answered(visit, results, data)

    def answered(self, visit: Visit, results: list[Result], data: st.DataObject | None) -> None:
        release = None
        ends = visit.nothing_follows(self.known(visit.reading.version), results)
        if ends and (data is None or data.draw(st.booleans(), label="and release")):
            release = visit.release([result.column_id for result in results if not result.retry])
            results = [result if result.retry else replace(result, leaving=True) for result in results]
        self.store(visit, results, release, data)

    def store(
        self, visit: Visit, results: Sequence[Result], release: Release | None, data: st.DataObject | None
    ) -> None:
        # An answer for the cache that is left open would make equal ones wait for it, as they should.
        kept = any(result.cache_signal is not None for result in results)
        ways = ["once"] * 6 + ["twice"] + (["once"] if kept else ["left open"])
        how = data.draw(st.sampled_from(ways), label="store") if data else "once"
        self.brought(results)
        token = visit.reading.token
        holds = self.token_of(visit.key.row_id) == (token.worker_id, token.claim)
        deleted = visit.key.row_id in self.deleted
        gone = self.column_ids() - self.version.by_id.keys()

        def stored() -> None:
            assert [one.won for one in flushed.stored] == [holds] * len(results), "R2"
            for result in results:
                if holds and not deleted and result.column_id not in gone:
                    self.store_in_model(result)
            calls = [(visit, result) for result in results if result.call and not result.cached]
            self.past = [*self.past[-5:], *calls]
            if data is None or data.draw(st.booleans(), label="wake"):
                wake(self.control, flushed.ended)
            if how == "twice":
                self.store_again(visit, results, release)
            else:
                visit.take_in(results, release, flushed)
                end_dispatches(self.control, list(flushed.dispatches))

        def then(commit: bool) -> None:
            if commit:
                stored()
            else:  # the server did not take it: it is sent again
                self.store(visit, results, release, None)

        if how == "left open":
            with self.left_open(visit.worker.storing, then):
                flushed = visit.flush(results, release)
        else:
            flushed = visit.flush(results, release)
            stored()

    def brought(self, results: Sequence[Result]) -> None:
        """Answers that the cache may give from now on."""
        for one in results:
            if one.cache_signal is not None and one.error_class is None:
                key = (one.fingerprint, one.value)
                self.answers[key] = max(self.answers.get(key, 0), one.cache_signal)

    def store_again(self, visit: Visit, results: Sequence[Result], release: Release | None) -> None:
        """The worker never learnt that its commit went through: it sends the same again."""
        flushed = visit.flush(results, release)
        visit.take_in(results, release, flushed)
        end_dispatches(self.control, list(flushed.dispatches))
        self.missed_end = True
        # Slots of the first release are unknown to it.
        if visit.worker.ended:
            pass
        elif self.busy(visit.worker.claiming):
            self.kill(visit.worker)
        else:
            self.recover(visit.worker, None)

    def give_up(self, data: st.DataObject) -> None:
        if visits := self.idle_visits():
            visit = visits[data.draw(st.integers(0, len(visits) - 1), label="visit")]
            ending = data.draw(st.sampled_from(["hand_back", "defer"]), label="ending")
            visit.calling.clear()
            self.store(visit, [], visit.end(ending, 30.0 if ending == "defer" else None), data)

    def late(self, data: st.DataObject) -> None:
        """An answer under a token that holds nothing any more, or never did: it is booked, and changes nothing."""
        visit, result = self.past[data.draw(st.integers(0, len(self.past) - 1), label="result")]
        if self.busy(visit.worker.storing) or visit.key.row_id in self.held()[0]:
            return
        token = result.token
        if self.token_of(result.key.row_id) == (token.worker_id, token.claim):
            token = Token(token.worker_id, token.claim + 1000)
        count = "select count(*), (select work::text from autofill.work where row_id = %s) from autofill.attempt"
        before, work = self.control.execute(count, [result.key.row_id]).fetchone() or (0, None)
        late = replace(result, token=token, value="late")
        self.brought([late])
        flushed = visit.flush([late], replace(visit.end("done"), token=token))
        assert [one.won for one in flushed.stored] == [False], "R2"
        assert flushed.released[0].outcome == "lost", "R2"
        assert self.control.execute(count, [result.key.row_id]).fetchone() == (before + 1, work), "R2"

    # ---- workers die, janitors clean up, time passes

    def crash(self, data: st.DataObject) -> None:
        pool = self.any_pool(data)
        self.kill(pool.worker)
        if data.draw(st.booleans(), label="another one comes"):
            self.afresh(pool)

    def kill(self, worker: Worker) -> None:
        """Its connections go, and its heart stops; its visits may still come late."""
        self.missed_end = True
        for one in [one for one in self.opened if one.connection in (worker.claiming, worker.storing)]:
            self.opened.remove(one)
            one.connection.execute("rollback")
        self.control.execute("update autofill.worker set lease = '0 s' where id = %s", [worker.id])
        worker.ended = True

    def janitor(self, data: st.DataObject) -> None:
        # One that finishes a cancel waits for the rows.
        if not (self.opened and any(one.canceled for one in self.asked)):
            keep_up(self.control)

    def goodbye(self, data: st.DataObject) -> None:
        pool = self.any_pool(data)
        worker = pool.worker
        if self.busy(worker.claiming) or self.busy(worker.storing):
            return
        held, _ = self.held()
        for visit in self.visits:
            if visit.worker is worker and not visit.over and visit.key.row_id not in held:
                visit.calling.clear()
                self.store(visit, [], visit.end("hand_back"), None)
        self.left_slots |= any(visit.worker is worker and not visit.over for visit in self.visits)
        claims.goodbye(worker.claiming, worker.id)
        worker.ended = True
        self.afresh(pool)

    def time_passes(self, data: st.DataObject | None = None) -> None:
        self.control.execute(
            # no two of them at once, so that the same steps come to the same
            "update autofill.work set available_at = now() - interval '1 ms' / row_id where (collection_id, row_id) in "
            "(select collection_id, row_id from autofill.work where state = 'delayed' for update skip locked)"
        )
