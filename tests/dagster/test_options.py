"""What a run's config does: filters, dry runs, caps, termination; and the job that takes any set of batches."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.errors import DagsterExecutionInterruptedError

from autofill_defs import runs
from autofill_defs.config import ErrorClass, FillConfig
from autofill_defs.reports import SO_FAR
from autofill_defs.request import choose
from autofill_defs.waiting import wait
from cell_engine.store.applying import apply
from cell_engine.store.batches import Batch
from cell_engine.store.changes import edit
from cell_engine.store.collections import find_collection, load_version
from cell_engine.store.control import pause
from cell_engine.store.database import Connection, connect
from cell_engine.store.reading import FAILED, Progress, durations, progress
from tests import functions
from tests.dagster.conftest import SPEC, Locate, Location, beside
from tests.engine import eventually, offline_model, running_worker

BROKEN = SPEC.replace("tests.functions:length", "tests.functions:boom")
OPEN = "select exists (select from autofill.dispatch where reason = 'run' and ended_at is null)"


@pytest.fixture
def four(location: Location, database: str) -> Iterator[Location]:
    """Four batches, all of them fresh."""
    location.load("one", "two", "three", "four")
    with running_worker(database):
        _, success = location.run("one", "four")
        assert success
        yield location


def _batch(key: str) -> Batch:
    return Batch(1, key, "", 1, 1, (), 0, None, "")  # type: ignore[arg-type]


def test_batches_are_named_by_key_pattern_or_range() -> None:
    batches = [_batch(key) for key in ("jan-1", "jan-2", "feb-1", "feb*", "a..b", "mar-1")]

    def keys(*wanted: str) -> list[str]:
        return [batch.key for batch in choose(batches, wanted)]

    assert keys("mar-1", "jan-1") == ["jan-1", "mar-1"]
    assert keys("jan-*", "jan-2") == ["jan-1", "jan-2"]
    assert keys("*") == [batch.key for batch in batches]
    assert keys("jan-2..feb*") == ["jan-2", "feb-1", "feb*"]
    assert keys("feb*") == ["feb*"]  # a key that is just so goes before what it may mean
    assert keys("a..b") == ["a..b"]
    for wanted in (("apr-*",), ("jan-1", "nosuch"), ()):
        with pytest.raises(dg.Failure) as raised:
            keys(*wanted)
        assert "mar-1" in str(raised.value.description)


def test_the_config_knows_every_class_of_error() -> None:
    assert {one.value for one in ErrorClass} == FAILED
    assert all(one.name == one.value for one in ErrorClass)
    assert FillConfig(only=["errors"]).only_if == tuple(sorted(f"error:{one}" for one in FAILED))  # type: ignore[list-item]
    config = FillConfig(only=["outdated"], error_classes=["schema"], max_cost=0.1)  # type: ignore[list-item]
    assert config.only_if == ("error:schema", "outdated")
    assert config.cap == 100_000_000
    assert FillConfig(only=["not_found"]).forces  # type: ignore[list-item]
    assert FillConfig().only_if is None


def test_a_sparse_set_is_one_dispatch_and_reports_exactly_its_keys(location: Location, database: str) -> None:
    location.load("one", "two", "three", "four")
    with running_worker(database):
        _, success = location.run_batches("four", "t*o", columns=["b"])
    assert success
    assert len(location.dispatches()) == 1
    asked = {(name, key) for name, key in location.materialized if name == "b"}
    assert asked == {("b", "two"), ("b", "four")}
    reported = location.materialized["b", "four"]
    assert reported.items() >= {"cells": 3, "ready": 3, "dagster/partition_row_count": 3}.items()
    assert "FOUR 0" in str(reported["preview"])
    # And what cascades from it, on the same batches alone.
    assert {key for _, key in location.materialized} == {"two", "four"}


def test_all_that_is_outdated_touches_only_the_batches_where_something_is(
    four: Location, connection: Connection
) -> None:
    _, success = four.run_batches("*", only=["outdated", "empty"])
    assert success
    assert four.materialized == {}
    newer = replace(four, defined=replace(four.defined, spec=_never(four)))
    apply(connection, newer.defined.spec, actor="test")
    collection = find_collection(connection, "test/table")
    version = load_version(connection, collection.id)
    edit(connection, collection.id, 8, {version.by_name["a"].id: "edited"}, actor="me")
    eventually(connection, "select not exists (select from autofill.dispatch where ended_at is null)")
    _, success = newer.run_batches("*", only=["outdated"])
    assert success
    assert newer.materialized.keys() == {("n", "three")}
    assert "throughput" in newer.materialized["n", "three"]  # though the last batch asked for is another
    assert (
        newer.materialized["n", "three"].items() >= {"cells": 1, "ready": 1, "dagster/partition_row_count": 3}.items()
    )


def _never(location: Location) -> Any:
    from cell_engine.specs.compile import compile_text

    return compile_text(SPEC.replace("{name: n, type: integer,", "{name: n, mode: never, type: integer,"))


def test_a_batch_that_dagster_does_not_know_becomes_a_partition(location: Location, database: str) -> None:
    location.load("one", "two")
    location.instance.delete_dynamic_partition("test/table", "two")
    with running_worker(database):
        _, success = location.run_batches("*", columns=["n"])
    assert success
    assert {("n", "one"), ("n", "two")} <= location.materialized.keys()
    assert set(location.instance.get_dynamic_partitions("test/table")) == {"one", "two"}


def test_a_dry_run_estimates_and_does_nothing(four: Location) -> None:
    before = four.dispatches()
    for run, success in (
        four.run("one", "two", columns=["b", "n"], force=True, dry_run=True),
        four.run_batches("one", "two", columns=["b", "n"], force=True, dry_run=True),
    ):
        assert success
        assert four.dispatches() == before
        assert four.materialized == {}
        observed = {}
        for entry in four.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_OBSERVATION):
            assert entry.dagster_event is not None
            observation = entry.dagster_event.asset_observation_data.asset_observation
            observed[observation.asset_key.path[-1]] = observation.metadata
        # c is not asked for by name, and would follow.
        assert {name: found["cells"].value for name, found in observed.items()} == {"b": 6, "n": 6, "c": 6}
        assert observed["b"]["dry_run"].value is True
        assert any("dry run: 18 cells" in message for message in four.messages(run))


def test_errors_are_shown_with_what_retries_them_and_it_does(locate: Locate, database: str) -> None:
    location = locate(BROKEN)
    location.load("one", "two")
    with running_worker(database):
        location.run("one", "two", max_error_rate=1.0)
        failed = location.materialized["n", "two"]
        assert "cannot do 'two 0'" in str(failed["errors"])
        retry = str(failed["retry"])
        assert "autofill retry test/table --class function_error --column n --batch two" in retry
        assert "errors" not in location.materialized["b", "two"]
        config = yaml.safe_load(retry.split("```yaml\n")[1].removesuffix("```"))
        [(op, told)] = config["ops"].items()
        assert op == "fill_test__table"
        _, success = location.run("two", "two", max_error_rate=1.0, **told["config"])
        assert success
        # Nothing but what was in error is called for.
        assert location.materialized["n", "two"].items() >= {"cells": 3, "failed": 3, "run_calls": 3}.items()
        assert location.materialized["b", "two"]["fresh"] == 3
        # Nor does anything else count: of what was tried again, all failed.
        run, success = location.run("one", "two", max_error_rate=0.9, **told["config"])
    assert not success
    assert any("6 of 6 cells ended in error" in str(entry) for entry in location.instance.all_logs(run.run_id))


def test_the_collection_declares_how_many_errors_fail_a_run(locate: Locate, database: str) -> None:
    location = locate(BROKEN)
    location.load("one")
    lenient = replace(location, defined=replace(location.defined, max_error_rate=1.0))
    with running_worker(database):
        _, success = lenient.run("one", "one")
        assert success
        _, success = lenient.run("one", "one", max_error_rate=0.2)
        assert not success


def test_a_run_says_how_fast_its_cells_ended(four: Location) -> None:
    four.run("one", "two", force=True)
    throughput = str(four.materialized["b", "two"]["throughput"])
    assert throughput.count("\n") == 14
    assert "cells a second" in throughput
    assert float(str(four.materialized["b", "two"]["cells_per_second"])) > 0
    assert "throughput" not in four.materialized["b", "one"]  # once a column: it is the whole run's


def test_a_run_says_how_long_calls_took(locate: Locate, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    location = locate(
        "namespace: test\nname: asked\ncolumns:\n  - {name: a, type: text}\n"
        "  - {name: s, type: text, kind: llm, llm: {model: offline-model, prompt: 'Shorten: {{a}}'}}\n"
        '  - {name: n, type: integer, kind: function, deps: [a], function: {name: "tests.functions:length"}}\n'
    )
    location.load("one", rows=20)
    with offline_model(monkeypatch), running_worker(database):
        _, success = location.run("one", "one", columns=["s", "n"])
    assert success
    said = location.materialized["s", "one"]
    p50, p95, p99 = (float(str(said[f"call_seconds_p{one}"])) for one in (50, 95, 99))
    assert 0 < p50 <= p95 <= p99 < 60
    assert "call_seconds_p50" not in location.materialized["n", "one"]  # a function's call is not timed
    stored = location.connection.execute(
        "select sum(cardinality(seconds)) as timed, sum(cardinality(row_ids)) as calls from autofill.attempt "
        "where model is not null"
    ).fetchone()
    assert stored is not None
    assert stored.timed == stored.calls == 20
    every = durations(location.connection, location.dispatches()[0][0], every=2**40)
    assert every == {}


def test_a_run_at_its_cap_reports_what_there_is_and_fails(location: Location, database: str) -> None:
    location.load("one")

    def reach() -> None:
        with connect(database, application="other") as connection:
            eventually(connection, OPEN)
            found = connection.execute("select id from autofill.dispatch where reason = 'run'").fetchone()
            assert found is not None
            pause(connection, found.id)  # as a worker does whose flush cost the last of it

    with beside(reach):
        run, success = location.run("one", "one", max_cost=0.0)
    assert not success
    assert location.materialized.keys() == {(name, "one") for name in "bcn"}
    assert all(
        metadata[SO_FAR] is True for metadata in location.materialized.values()
    )  # the changes sensor reports its end
    [(dispatch, _)] = location.dispatches()
    assert any(
        f"autofill budget set {dispatch} AMOUNT" in str(entry) for entry in location.instance.all_logs(run.run_id)
    )
    found = progress(location.connection, dispatch)
    assert found is not None
    assert found.max_cost == 0
    assert found.ended_at is None


def test_a_run_that_was_done_before_its_cap_could_pause_it_says_that_it_overspent(
    location: Location, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    location.load("one")

    def waited(*arguments: Any) -> Progress:
        return replace(wait(*arguments), cost=700_000, max_cost=100_000)

    monkeypatch.setattr(runs, "wait", waited)
    with running_worker(database):
        run, success = location.run("one", "one", max_cost=0.0001)
    assert success
    assert location.materialized["b", "one"]["run_over_max_cost_usd"] == 0.0006
    assert any("has cost $0.00070, more than its max_cost of $0.00010" in said for said in location.messages(run))


@pytest.mark.parametrize("cancels", [False, True])
def test_termination_cancels_the_rest_only_if_asked(
    location: Location, monkeypatch: pytest.MonkeyPatch, cancels: bool
) -> None:
    location.load("one")

    def interrupted(*_arguments: object) -> None:
        raise DagsterExecutionInterruptedError

    monkeypatch.setattr(runs, "wait", interrupted)
    run = location.create_run("one", "one", cancel_on_terminate=cancels)
    assert not location.execute(run)
    [(dispatch, _)] = location.dispatches()
    found = progress(location.connection, dispatch)
    assert found is not None
    assert (found.canceled_at is not None) is cancels
    assert (found.ended_at is not None) is cancels


def test_a_run_whose_dispatch_somebody_cancels_is_no_success(
    location: Location, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    from cell_engine.store.control import cancel

    location.load("one")

    def stop() -> None:
        with connect(database, application="other") as connection:
            eventually(connection, OPEN)
            [(dispatch, _)] = location.dispatches()
            cancel(connection, dispatch)

    with beside(stop):
        run, success = location.run("one", "one")
    assert not success
    assert any("was canceled" in str(entry) for entry in location.instance.all_logs(run.run_id))


def test_a_version_applied_meanwhile_interrupts_no_run(locate: Locate, database: str) -> None:
    held = SPEC.replace('tests.functions:upper"', 'tests.functions:held"')
    location = locate(held)
    location.load("one", rows=20)
    functions.HOLD.clear()

    def change() -> None:
        with connect(database, application="other") as connection:
            eventually(connection, OPEN)
            apply(connection, locate(SPEC).defined.spec, actor="somebody")
            functions.HOLD.set()

    try:
        with running_worker(database), beside(change):
            run, success = location.run("one", "one")
    finally:
        functions.HOLD.set()
    assert success
    assert location.materialized["b", "one"]["failed"] == 0
    assert not any("interrupted" in message.lower() for message in location.messages(run))
    assert find_collection(location.connection, "test/table").version == 2
    # Every cell comes to what the version applied meanwhile says.
    eventually(
        location.connection,
        "select count(*) = 20 from autofill.cell join autofill.definition using (collection_id, column_id) "
        "where definition.name = 'b' and definition.version = 2 and ai_value #>> '{}' like 'ONE %%'",
    )
