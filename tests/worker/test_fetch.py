"""Pages through a real worker and the real model's client: what a refresh costs when nothing, or one page, changed."""

import asyncio
import threading
from collections.abc import Iterator
from uuid import uuid4

import pytest

from cell_engine.plan import Cell
from cell_engine.store.changes import edit
from cell_engine.store.claims import RowKey, Token
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, RowScope, dispatch
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import Progress, page, progress, recent_dispatches
from cell_engine.store.results import Result
from cell_engine.worker.outcomes import cell_after
from tests.engine import Made, eventually, make, offline_model, running_worker
from tests.kinds.site import Site, html

ENDED = "select ended_at is not null from autofill.dispatch where id = %s"

SPEC = """
namespace: test
name: pages
columns:
  - {name: url, type: url}
  - {name: page, type: text, kind: fetch, deps: [url]}
  - {name: summary, type: text, kind: llm, llm: {model: gpt-5-mini, prompt: "Summarise {{page}}"}}
"""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site on loopback, in a thread of its own, that the worker may fetch from as fast as it likes."""
    monkeypatch.setenv("AUTOFILL_FETCH_ALLOW", "127.0.0.1")
    monkeypatch.setenv("AUTOFILL_FETCH_DELAY", "0")
    monkeypatch.setenv("AUTOFILL_FETCH_PER_HOST", "50")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    site = asyncio.run_coroutine_threadsafe(Site().__aenter__(), loop).result(30)
    yield site
    asyncio.run_coroutine_threadsafe(site.__aexit__(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)
    loop.close()


def text(number: int, words: str = "opens at nine") -> str:
    return html(f"The library of town {number} {words}.", title=f"Town {number}")


def refresh(connection: Connection, made: Made, rows: int) -> Progress:
    asked = dispatch(
        connection, made.collection.id, RangeScope(((1, rows),)), columns=[made.id("page")], force=True,
        reason="refresh", actor="me",
    )  # fmt: skip
    eventually(connection, ENDED, asked, seconds=60)
    done = progress(connection, asked)
    assert done is not None
    return done


@pytest.mark.timeout(300)
def test_a_thousand_fetches_of_an_unchanged_site_cost_no_body_and_no_model_call_and_a_changed_page_its_row_alone(
    connection: Connection, database: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 1000
    urls = [site.put(f"/{number}", text(number), etag=f'"{number}"') for number in range(rows)]
    with offline_model(monkeypatch) as model, running_worker(database):
        made = make(connection, SPEC, rows=[{"url": url} for url in urls])
        load = recent_dispatches(connection, made.collection.id)[0].id
        eventually(connection, ENDED, load, seconds=90)
        filled = progress(connection, load)
        assert filled is not None
        assert filled.outcomes == {"ready": 2 * rows}
        assert (site.bodies, model.stats.arrived) == (rows, rows)
        # nothing changed
        assert refresh(connection, made, rows).outcomes == {"unchanged": rows}
        assert (site.bodies, model.stats.arrived) == (rows, rows)
        assert len(site.asked) == 2 * rows + 1  # and robots.txt, once
        # one page did
        site.put("/7", text(7, "is closed"), etag='"7b"')
        assert refresh(connection, made, rows).outcomes == {"unchanged": rows - 1, "ready": 2}
        assert (site.bodies, model.stats.arrived) == (rows + 1, rows + 1)
    _, (fetched, summary) = page(connection, made.collection.id, after=7, limit=1)
    assert (fetched.value, summary.status) == ("The library of town 7 is closed.", "ready")
    assert fetched.details is not None
    assert (fetched.details["title"], fetched.details["etag"]) == ("Town 7", '"7b"')
    assert broken_rules(connection) == {}


def test_a_page_that_is_gone_is_that_cells_error_and_comes_back_unchanged_without_a_body(
    connection: Connection, database: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = site.put("/x", text(1), etag='"1"')
    with offline_model(monkeypatch) as model, running_worker(database):
        made = make(connection, SPEC, rows=[{"url": url}, {"url": url + "?other"}])
        eventually(connection, ENDED, recent_dispatches(connection, made.collection.id)[0].id)
        there, calls = site.pages.pop("/x"), model.stats.arrived
        assert refresh(connection, made, 2).outcomes == {"bad_input": 2, "blocked": 2}
        _, (fetched, summary, *_) = page(connection, made.collection.id)
        assert (fetched.status, fetched.details, summary.status) == ("error", None, "blocked")
        assert "404" in str(fetched.error)
        site.pages["/x"] = there
        bodies = site.bodies
        refresh(connection, made, 2)
        assert site.bodies == bodies
        # the pages are what they were, so what was made of them is, too
        _, cells = page(connection, made.collection.id)
        assert [cell.status for cell in cells] == ["ready"] * 4
        assert model.stats.arrived <= calls + 2
    assert broken_rules(connection) == {}


def test_an_edited_url_is_fetched_though_the_last_page_was_the_same_version(
    connection: Connection, database: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (site.put(f"/{number}", text(number), etag='"same"') for number in (1, 2))
    with offline_model(monkeypatch), running_worker(database):
        made = make(connection, SPEC, rows=[{"url": one}])
        eventually(connection, ENDED, recent_dispatches(connection, made.collection.id)[0].id)
        edited = edit(connection, made.collection.id, 1, {made.id("url"): other}, actor="me")
        eventually(connection, ENDED, edited)
    _, (fetched, _) = page(connection, made.collection.id)
    assert fetched.value == "The library of town 2 opens at nine."


def test_a_hosts_line_costs_no_attempt(
    connection: Connection, database: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOFILL_FETCH_DELAY", "1")
    spec = SPEC.replace("deps: [url]}", "deps: [url], attempts: 1}")
    urls = [site.put(f"/{number}", text(number)) for number in range(9)]
    with offline_model(monkeypatch), running_worker(database):
        made = make(connection, spec, rows=[{"url": url} for url in urls])
        load = recent_dispatches(connection, made.collection.id)[0].id
        eventually(connection, ENDED, load, seconds=60)
        again = dispatch(
            connection, made.collection.id, RowScope((1,)), columns=[made.id("page")], reason="test", actor="me"
        )
        eventually(connection, ENDED, again)
    done = progress(connection, load)
    assert done is not None
    assert done.outcomes == {"ready": 18}
    assert done.attempts["failed"] >= 1  # sent away, to come back
    assert [len(site.times(f"/{number}")) for number in range(9)] == [1] * 9


def test_within_a_visit_too_details_are_those_of_the_answer() -> None:
    before = Cell(ai_value="old", details={"etag": "1"})
    result = Result(RowKey(1, 1), Token(uuid4(), 1), 2, 1, 1, 1, 1, 1, value="new", details={"etag": "2"})
    after = cell_after(before, result, 0)
    assert (after.ai_value, after.details) == ("new", {"etag": "2"})
    result.error_class, result.details = "bad_input", None
    assert cell_after(before, result, 0).details == {"etag": "1"}
    result.error_class, result.call = None, False
    assert cell_after(before, result, 0).details == {"etag": "1"}
