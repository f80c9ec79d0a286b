"""The engine as a state machine: people, loads, sweeps, two pools of workers, crashes and janitors, in any order, with
transactions left open in between. After every step the rules hold; at the end everything is at rest, and right."""

from collections import Counter
from contextlib import suppress

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from cell_engine.specs.compile import compile_text
from cell_engine.specs.text import Json
from cell_engine.store import claims, control
from cell_engine.store.applying import apply
from cell_engine.store.upkeep import keep_up
from tests.store.people import INPUTS, People
from tests.store.pools import Pools
from tests.store.visits import Visit
from tests.store.world import VERSIONS, Pool, text

FINISHED = 60  # plans after which a visit should have ended, and turns after which everything should be at rest
TURNS = 300
# how often each action is drawn, where it is possible
WEIGHTS = {
    "edit": 4, "reset": 1, "revert": 1, "ask": 4, "stop": 2, "load": 1, "apply": 1, "delete": 1, "undelete": 1,
    "decide": 10, "finish": 3, "claim": 8, "widen": 1, "poll": 2, "advance": 10, "answer": 10, "give_up": 1, "late": 1,
    "crash": 1, "janitor": 1, "goodbye": 1, "time_passes": 1,
}  # fmt: skip


class Machine(People, Pools, RuleBasedStateMachine):
    @initialize(rows=st.lists(st.tuples(INPUTS, INPUTS), min_size=1, max_size=4))
    def begin(self, rows: list[tuple[Json, Json]]) -> None:
        applied = apply(self.control, compile_text(VERSIONS[0]), actor="me")
        self.collection = applied.collection.id
        self.version = self.versions[applied.version.number] = applied.version
        for job_types in (["function"], ["llm"], ["function", "llm"]):
            self.pools.append(Pool(job_types, self.new_worker(len(self.pools), job_types)))
        self.load_rows(rows)
        self.check()

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        visiting = [one for one in self.visits if not one.over]
        possible = WEIGHTS | {
            name: 0
            for name, one in {
                "reset": any(cell.user[0] for cell in self.cells.values()),
                "stop": not self.opened and any(one.reason == "reprocess" for one in self.asked),
                "decide": any(cell.error_class == "proposed" for cell in self.cells.values()),
                "load": len(self.rows) < 6,
                "undelete": self.deleted,
                "finish": self.opened,
                "advance": visiting,
                "give_up": visiting,
                "answer": any(one.calling for one in visiting),
                "late": self.past,
            }.items()
            if not one
        }
        names = [name for name, weight in possible.items() for _ in range(weight)]
        getattr(self, data.draw(st.sampled_from(names), label="action"))(data)
        self.check()

    # ---- the end: everything comes to rest

    def teardown(self) -> None:
        try:
            if self.pools:
                self.come_to_rest()
                self.check_rest()
        finally:
            for one in self.opened:
                one.connection.execute("rollback")

    def come_to_rest(self) -> None:
        for one in list(self.opened):
            self.close(one, True)
        for asked in self.asked:
            with suppress(control.DispatchStateError):
                control.resume(self.control, asked.id)
        for pool in self.pools:
            if pool.worker.ended:
                self.afresh(pool)
            self.recover(pool.worker, None)
        for visit in self.visits:
            self.finish_visit(visit)
        if self.missed_end or self.left_slots:
            keep_up(self.control)
        for _ in range(TURNS):
            self.time_passes()
            self.recover(self.pools[2].worker, None)  # it claims no more
            for pool in self.pools[:2]:  # each serves one job type: rows are handed over
                worker = pool.worker
                freed, worker.freed = worker.freed, Counter()
                taken = claims.claim(worker.claiming, worker.token(), worker.job_types, 3, 3, freed)
                self.claimed(worker, taken)
                for visit in self.visits:
                    self.finish_visit(visit)
            left = self.control.execute(LEFT_OVER).fetchall()
            if not left:
                break
        assert left == [], f"it does not come to rest: {left}, {self.control.execute(HELD).fetchall()}"
        if self.missed_end:
            keep_up(self.control)

    def finish_visit(self, visit: Visit) -> None:
        for _ in range(FINISHED):
            if visit.over:
                return
            self.go_on(visit)
            if visit.calling and not visit.over:
                results = [visit.result(column, value=text(due)) for column, (due, _) in list(visit.calling.items())]
                self.answered(visit, results, None)
        raise AssertionError("a visit does not end")


HELD = "select slot::text from autofill.slot union all select worker::text from autofill.worker"
LEFT_OVER = """
select work::text as left_over from autofill.work
union all select sweep::text from autofill.sweep where closed_at is null
"""
