"""Functions in a worker: what does not fit is told at its start; a call that is made again is the same call."""

import asyncio

import pytest

from cell_engine.kinds import make_kinds
from cell_engine.specs.compile import compile_text
from cell_engine.specs.version import Version
from cell_engine.store.database import Connection
from cell_engine.store.demands import RowScope, dispatch
from cell_engine.worker import checking
from cell_engine.worker.loop import Worker
from tests import functions
from tests.engine import eventually, make, running_worker

SPEC = """
namespace: test
name: keyed
columns:
  - {name: a, type: text}
  - {name: b, type: text, kind: function, deps: [a], function: {name: "tests.functions:keyed"}}
"""


async def _called(times: int) -> None:
    async with asyncio.timeout(30):
        while len(functions.KEYS) < times:  # noqa: ASYNC110 (by another thread)
            await asyncio.sleep(0.01)


def test_a_call_that_is_made_again_has_the_same_idempotency_key_and_a_forced_one_another(
    connection: Connection, database: str
) -> None:
    functions.KEYS.clear()
    functions.HOLD.clear()
    made = make(connection, SPEC, rows=[{"a": "x"}])

    async def interrupted() -> None:
        worker = Worker(database, ["function"], 10, 30.0)
        await worker.start()
        await _called(1)
        await worker.stop(grace=0)

    asyncio.run(interrupted())
    with running_worker(database, job_types=["function"]):
        asyncio.run(_called(2))
        functions.HOLD.set()
        ended = "select ended_at is not null from autofill.dispatch where id = %s"
        forced = dispatch(
            connection,
            made.collection.id,
            RowScope((1,)),
            columns=[made.id("b")],
            force=True,
            reason="test",
            actor="me",
        )
        eventually(connection, ended, forced)
    first, again, other = functions.KEYS
    assert first == again != other


def test_a_starting_worker_tells_of_columns_that_do_not_work(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, object]] = []
    monkeypatch.setattr(checking.log, "warning", lambda event, **fields: told.append(fields))
    make(connection, SPEC.replace("tests.functions:keyed", "no_such_module_at_all:f"))
    with running_worker(database, job_types=["function"]):

        async def heard() -> None:
            async with asyncio.timeout(30):
                while not told:  # noqa: ASYNC110 (by another thread)
                    await asyncio.sleep(0.01)

        asyncio.run(heard())
    assert (told[0]["collection"], told[0]["column"]) == ("test/keyed", "b")
    assert "No module named 'no_such_module_at_all'" in str(told[0]["why"])


def test_each_column_that_does_not_work_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = compile_text("""
namespace: test
name: many
columns:
  - {name: a, type: text}
  - {name: fits, type: text, kind: function, deps: [a], function: {name: "tests.functions:upper"}}
  - {name: unfit, type: integer, kind: function, deps: [a], function: {name: "tests.functions:upper"}}
  - {name: lost, type: text, kind: function, deps: [a], function: {name: "tests.functions:no_such"}}
  - {name: asks, type: text, kind: llm, llm: {model: m, prompt: "{{a}}"}}
""")
    version = Version(1, 1, spec.bind({column.key: number for number, column in enumerate(spec.columns, 1)}))
    found = dict(checking.troubles(version, make_kinds(["function"])))
    assert found.keys() == {"unfit", "lost"}
    assert found["unfit"] == "tests.functions:upper: it is annotated to return str, which never fits type integer"
    assert "no_such" in found["lost"]
    monkeypatch.setenv("AUTOFILL_FUNCTIONS", "acme")
    found = dict(checking.troubles(version, make_kinds(["function"])))
    assert "is not allowed here" in found["fits"]
