"""Answers under review, by the real worker: also those that the cache had."""

from cell_engine.store.database import Connection
from cell_engine.store.reviews import Filter, decide
from tests.engine import eventually, make, running_worker

SPEC = """
namespace: test
name: reviewed
columns:
  - {name: a, type: text}
  - name: b
    type: text
    kind: function
    deps: [a]
    review: required
    cache: true
    function: {name: "tests.functions:upper"}
  - {name: c, type: text, kind: function, deps: [b], function: {name: "tests.functions:upper_b"}}
"""
STATUSES = """
select array_agg(status order by row_id, column_id) = %s from autofill.cell_status
"""


def test_a_worker_proposes_and_goes_on_when_it_is_accepted(connection: Connection, database: str) -> None:
    made = make(connection, SPEC, rows=[{"a": "x"}, {"a": "x"}])
    with running_worker(database, job_types=["function"]):
        eventually(connection, STATUSES, ["proposed", "waiting"] * 2)
        eventually(connection, "select not exists (select from autofill.dispatch where ended_at is null)")
        decide(connection, made.collection.id, Filter((made.id("b"),), ((1, 1),)), accepted=True, actor="me")
        eventually(connection, STATUSES, ["ready", "ready", "proposed", "waiting"])
        decide(connection, made.collection.id, Filter((made.id("b"),)), accepted=False, actor="me")
        eventually(connection, STATUSES, ["ready", "ready", "rejected", "blocked"])
    outcomes = connection.execute(
        "select outcome, sum(cardinality(row_ids))::int as cells from autofill.completion group by 1 order by 1"
    ).fetchall()
    assert outcomes == [("blocked", 1), ("proposed", 2), ("ready", 1)]
    calls = connection.execute("select sum(cardinality(row_ids))::int from autofill.attempt").fetchone()
    assert calls == (2,), "one call for both, and one for what reads the accepted one"
