"""A sweep through a provider that limits, fails, breaks off, lies and runs out of money: at any size, with a report."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from cell_engine.kinds import llm_request
from cell_engine.kinds.base import Call
from cell_engine.offline_model import OfflineModel, Switches
from cell_engine.offline_model.answers import complete
from cell_engine.store.database import Connection
from cell_engine.store.holds import active, lift_collection
from cell_engine.store.reading import page, recent_dispatches
from tests.engine import Made, eventually, make, running_worker

FAULTS = Switches(
    latency=0.01,
    rate_limited=0.2,
    retry_after=0.05,
    server_error=0.05,
    connection_reset=0.02,
    truncated=0.01,
    invalid_json=0.01,
    seed=7,
)
ATTEMPTS = 4
SLOTS = 50
SPEC = f"""
namespace: test
name: storm
columns:
  - {{name: a, type: text}}
  - name: b
    type: text
    kind: llm
    deps: [a]
    attempts: {ATTEMPTS}
    llm: {{model: offline, prompt: "Summarise. {{{{a}}}}"}}
"""


@dataclass(frozen=True)
class Storm:
    """What came of it. `turned_away` are calls that met the exhausted quota before the lane was held."""

    rows: int
    errors: Counter[str]
    fates: Counter[str]
    turned_away: int
    wrong: list[int]

    @property
    def waste(self) -> float:
        """Calls made to calls needed: one a cell and one for each answer to be corrected. A 429 is no call."""
        made = sum(count for fate, count in self.fates.items() if fate not in ("rate_limited", "quota_exhausted"))
        return made / (self.rows + self.fates["invalid_json"])


def weather(connection: Connection, url: str, model: OfflineModel, rows: int, seconds: float) -> Storm:
    """Run it; the quota is exhausted midway, and there again when the lane has come to rest."""
    made = make(connection, SPEC, rows=[{"a": f"The number of this row is {row}."} for row in range(rows)])
    load = recent_dispatches(connection, made.collection.id)[-1].id
    model.switches = FAULTS.model_copy(update={"quota_exhausted_from": rows // 2})
    with running_worker(url, slots=SLOTS):
        eventually(
            connection,
            "select exists (select from autofill.hold where lifted_at is null and reason = 'quota') "
            "and not exists (select from autofill.work where state = 'computing')",
            seconds=seconds,
        )
        turned_away = model.stats.by_fate["quota_exhausted"]
        assert [one.reason for one in active(connection)] == ["quota"]
        model.switches = FAULTS
        lift_collection(connection, made.collection.id, made.collection.namespace, "test")
        eventually(
            connection, "select ended_at is not null from autofill.dispatch where id = %s", load, seconds=seconds
        )
    errors, wrong = _judge(connection, made, rows)
    return Storm(rows, errors, Counter(model.stats.by_fate), turned_away, wrong)


def _judge(connection: Connection, made: Made, rows: int) -> tuple[Counter[str], list[int]]:
    """The errors by class, and rows whose value is not what the model says to their prompt."""
    errors: Counter[str] = Counter()
    wrong = []
    after = 0
    while cells := page(connection, made.collection.id, after=after, limit=1000)[1]:
        for cell in cells:
            if cell.error_class is not None:
                errors[cell.error_class] += 1
            elif cell.value != _expected(made, cell.row_id):
                wrong.append(cell.row_id)
        after = cells[-1].row_id
    return errors, wrong


def _expected(made: Made, row_id: int) -> Any:
    column = made.version.by_name["b"]
    inputs = {made.id("a"): f"The number of this row is {row_id - 1}."}
    call = Call(column, inputs, made.version.keys, made.collection.full_name, row_id, (), 1.0)
    return json.loads(complete(llm_request.body(call, llm_request.messages(call))).content)["value"]
