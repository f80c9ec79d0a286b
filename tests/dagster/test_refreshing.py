"""What a tick's run does: columns refreshed and reported, sources looked at again."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from autofill_defs.refreshing import build_refresh_job
from autofill_defs.ticks import build_ticks_job
from cell_engine.store.applying import apply
from cell_engine.store.batches import add_batch
from cell_engine.store.collections import find_collection, load_version
from cell_engine.store.models import broken_rules
from tests.dagster.conftest import Locate, Location
from tests.engine import Claimer, offline_model, running_worker
from tests.kinds.site import html
from tests.load.test_feeds import item, rss, serving

PAGES = """
namespace: test
name: pages
columns:
  - {name: url, type: url}
  - {name: page, type: text, kind: fetch, deps: [url], mode: cron, cron: "0 6 * * *"}
  - {name: summary, type: text, kind: llm, mode: cron, cron: "0 6 * * *",
     llm: {model: gpt-5-mini, prompt: "Summarise {{page}}"}}
  - {name: loud, type: text, kind: function, deps: [page], function: {name: "tests.functions:shape_1"}}
"""
GOODS = """
namespace: test
name: goods
key: id
{declares}
columns:
  - {{name: id, type: text}}
  - {{name: title, type: text}}
  - {{name: b, type: text, kind: function, deps: [title], function: {{name: "tests.functions:shape_1"}}}}
"""


class Executed:
    """A job's run: what it reported, by column."""

    def __init__(self, location: Location, job: dg.JobDefinition, **config: Any) -> None:
        run_config = {"ops": {job.nodes[0].name: {"config": config}}} if config else {}
        self.result = job.execute_in_process(instance=location.instance, run_config=run_config, raise_on_error=False)
        self.materialized: set[tuple[str, str | None]] = set()
        self.observed: dict[str, dict[str, Any]] = {}
        # from the event log: what is written there in batches is no event of the result
        for entry in location.instance.all_logs(self.result.run_id):
            event = entry.dagster_event
            if event is None:
                continue
            if event.is_step_materialization:
                made = event.step_materialization_data.materialization
                self.materialized.add((made.asset_key.path[-1], made.partition))
            elif event.event_type is dg.DagsterEventType.ASSET_OBSERVATION:
                seen = event.asset_observation_data.asset_observation
                self.observed[seen.asset_key.path[-1]] = {name: one.value for name, one in seen.metadata.items()}

    @property
    def error(self) -> str:
        [failed] = [event for event in self.result.all_events if event.is_step_failure]
        return str(failed.step_failure_data.user_failure_data.description)


def test_a_tick_asks_for_each_page_once_and_reports_what_has_changed(
    locate: Locate, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOFILL_FETCH_ALLOW", "127.0.0.1")
    monkeypatch.setenv("AUTOFILL_FETCH_DELAY", "0")
    location = locate(PAGES)
    job = build_ticks_job(location.defined)
    with serving() as site, offline_model(monkeypatch) as model, running_worker(database):
        urls = [site.put(f"/{n}", html(f"The library of town {n} is open."), etag=f'"{n}"') for n in range(4)]
        apply(location.connection, location.defined.spec, actor="test")
        collection = find_collection(location.connection, "test/pages")
        version = load_version(location.connection, collection.id)
        for key, some in (("one", urls[:2]), ("two", urls[2:])):
            rows = [{version.by_name["url"].id: url} for url in some]
            add_batch(location.connection, version, key, rows, source=key, actor="test")

        # both columns in one visit of each row, the page before what reads it
        first = Executed(location, job)
        assert first.result.success
        columns = {"page", "summary", "loud"}
        assert first.materialized == {(name, key) for name in columns for key in ("one", "two")}
        assert (site.bodies, model.stats.arrived) == (4, 4)

        second = Executed(location, job, columns=["page", "summary"])
        assert second.result.success
        assert second.materialized == set()
        assert (site.bodies, model.stats.arrived) == (4, 4)
        assert second.observed["page"]["unchanged"] == second.observed["summary"]["fresh"] == 4
        assert second.observed["page"]["batches_changed"] == 0

        site.put("/3", html("The library of town 3 is closed."), etag='"3b"')
        third = Executed(location, job)
        assert third.materialized == {(name, "two") for name in columns}
        assert (site.bodies, model.stats.arrived) == (5, 5)

        for n in range(4):
            site.put(f"/{n}", status=404)
        failed = Executed(location, job, columns=["page"])
        assert "4 of 4 cells ended in error (bad_input 4)" in failed.error
    assert broken_rules(location.connection) == {}


def test_a_source_is_synced_by_a_run_and_what_it_refuses_is_the_runs_failure(
    locate: Locate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled_files: None
) -> None:
    monkeypatch.setenv("AUTOFILL_FILES", str(tmp_path))
    location = locate(GOODS.format(declares="source: goods.csv"))
    job = build_refresh_job(location.defined)
    file = tmp_path / "goods.csv"
    file.write_text("id,title\n1,x\n2,y\n3,z\n")
    first = Executed(location, job)
    [key] = location.instance.get_dynamic_partitions("test/goods")
    assert first.materialized == {("rows", key)}
    assert first.observed["rows"]["inserted"] == 3
    claimer = Claimer(location.connection)
    assert claimer.work_off() == ["b"] * 3
    # nothing has changed
    second = Executed(location, job)
    assert second.materialized == set()
    assert (second.observed["rows"]["unchanged"], second.observed["rows"]["changed"]) == (3, False)
    file.write_text("id,title\n1,x\n2,other\n4,new\n")
    third = Executed(location, job)
    assert [third.observed["rows"][name] for name in ("inserted", "updated", "deleted", "unchanged")] == [1, 1, 1, 1]
    assert len(third.materialized) == 1
    assert claimer.work_off() == ["b"] * 2
    file.write_text("id,title\n")
    assert "it lacks 3 of the 3 rows of test/goods, more than 50%" in Executed(location, job).error
    # Dagster has forgotten one, or a run died before it told of it
    location.instance.delete_dynamic_partition("test/goods", key)
    file.write_text("id,title\n1,x\n2,other\n4,new\n")
    assert Executed(location, job).materialized == {("rows", key)}


def test_a_feed_is_looked_at_by_a_run(locate: Locate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFILL_FETCH_ALLOW", "127.0.0.1")
    with serving() as site:
        url = site.put("/feed", rss(item(1), item(2)), content_type="application/rss+xml", etag='"1"')
        location = locate(GOODS.format(declares=f"feed: {url}"))
        job = build_refresh_job(location.defined)
        assert Executed(location, job).observed["rows"]["inserted"] == 2
        assert Executed(location, job).observed["rows"]["changed"] is False
        assert site.bodies == 1
        site.put("/feed", status=500)
        assert "answers with HTTP 500" in Executed(location, job).error
