"""The views for people: each queried over what a real collection left behind, and each described."""

import re
from typing import Any

import psycopg
import yaml

from cell_engine.plan import plan
from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import apply
from cell_engine.store.changes import edit
from cell_engine.store.claims import goodbye
from cell_engine.store.database import SQL, Connection
from cell_engine.store.models import create_models
from tests.engine import Claimer, Made, make, sheet
from tests.store.conftest import beside, opened

__all__ = ["beside", "opened"]


def view(connection: Connection, name: str) -> list[dict[str, Any]]:
    return [one._asdict() for one in connection.execute(f"select * from autofill.{name}".encode())]


def failing(connection: Connection) -> tuple[Made, Claimer]:
    """Three rows of a and b: one answered, one refused, one whose b is blocked behind it."""
    made = make(connection, sheet("a", "b: a", "c: b"), rows=[{"a": "x"}, {"a": "y"}, {"a": "z"}])
    claimer = Claimer(connection)
    for number, visit in enumerate(sorted(claimer.claim(), key=lambda one: one.key.row_id)):
        steps = plan(visit.row, made.version, visit.asked)
        failure = {"error_class": "refused", "error": "no"} if number else {}
        answer = claimer.answer(
            visit, made.id("b"), None if number else "B", steps, model="m", tokens_in=10, tokens_out=3, **failure
        )
        claimer.flush([answer])
        reading = claimer.reread(visit)
        assert reading is not None
        claimer.visit(reading)
    return made, claimer


def test_the_models_are_described_and_use_what_dbt_gives_them(connection: Connection) -> None:
    described = yaml.safe_load((SQL / "models" / "schema.yml").read_text())
    models = {one["name"]: one for one in described["models"]}
    sources = {(one["name"], table["name"]) for one in described["sources"] for table in one["tables"]}
    texts = {path.stem: path.read_text() for path in (SQL / "models").glob("*.sql")}
    assert set(models) == set(texts)
    for name, text in texts.items():
        assert set(re.findall(r"source\('(\w+)', '(\w+)'\)", text)) <= sources
        bare = re.findall(
            r"(?<!distinct )(?<!epoch )(?:\bfrom|\bjoin)\s+(?!\{\{|lateral|unnest|\()(\w+)", re.sub(r"--.*", "", text)
        )
        assert set(bare) <= set(re.findall(r"\bwith (?:recursive )?(\w+) as \(", text)), name
        columns = {
            one.name for one in connection.execute(f"select * from autofill.{name} limit 0".encode()).description or ()
        }
        assert {one["name"] for one in models[name].get("columns", ())} <= columns
        assert models[name]["description"]


def test_lane_says_how_deep_and_how_old_the_queue_is(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a"), rows=[{"a": "x"}, {"a": "y"}], demand=False)
    for row_id in (1, 2):
        edit(connection, made.collection.id, row_id, {made.id("a"): "new"}, actor="me")
    connection.execute("update autofill.work set queued_at = queued_at - interval '1 hour' where row_id = 1")
    (lane,) = view(connection, "lane")
    assert (lane["namespace"], lane["collection"], lane["job_type"]) == ("test", "sheet", "function")
    assert (lane["queued"], lane["delayed"], lane["parked"], lane["computing"]) == (2, 0, 0, 0)
    assert 3600 <= lane["oldest_age"] < 3700
    Claimer(connection).claim(slots=1)
    (lane,) = view(connection, "lane")
    assert (lane["queued"], lane["computing"]) == (1, 1)
    assert lane["oldest_age"] < 100


def test_in_flight_shows_each_worker_with_what_it_holds(connection: Connection) -> None:
    make(connection, sheet("a", "b: a"), rows=[{"a": "x"}, {"a": "y"}])
    idle, busy, gone, dead = Claimer(connection), Claimer(connection), Claimer(connection), Claimer(connection)
    busy.claim(slots=1)
    dead.claim(slots=1)
    goodbye(connection, gone.id)
    connection.execute("update autofill.worker set beat_at = beat_at - interval '1 minute' where id = %s", [dead.id])
    workers = {one["worker_id"]: one for one in view(connection, "in_flight")}
    assert set(workers) == {idle.id, busy.id, dead.id}
    found = {key: (one["live"], one["visits"], one["slots"]) for key, one in workers.items()}
    assert found == {idle.id: (True, 0, 0), busy.id: (True, 1, 1), dead.id: (False, 1, 1)}
    assert 60 <= workers[dead.id]["beat_age"] < 100
    assert workers[busy.id]["lease"] == 30
    assert workers[busy.id]["oldest_age"] < 30
    assert workers[idle.id]["oldest_age"] is None


def test_error_classes_counts_what_shows_an_error(connection: Connection) -> None:
    made, _ = failing(connection)
    found = {(one["column"], one["error_class"]): one["cells"] for one in view(connection, "error_classes")}
    assert found == {("b", "refused"): 2, ("c", "blocked"): 2}
    edit(connection, made.collection.id, 2, {made.id("b"): "mine"}, actor="me")
    connection.execute("update autofill.row set deleted_at = now() where row_id = 3")
    apply(connection, compile_text(sheet("a", "b: a")), actor="me")
    assert view(connection, "error_classes") == []


def test_spend_adds_up_calls_and_tokens(connection: Connection) -> None:
    _, _ = failing(connection)
    spent = {(one["column"], one["model"]): one for one in view(connection, "spend")}
    assert set(spent) == {("b", "m"), ("c", None)}
    b = spent["b", "m"]
    assert (b["calls"], b["failed"], b["interrupted"], b["tokens_in"], b["tokens_out"]) == (3, 2, 0, 30, 9)
    assert (spent["c", None]["calls"], b["namespace"], b["collection"]) == (1, "test", "sheet")
    apply(connection, compile_text(sheet("a")), actor="me")
    assert {one["column"] for one in view(connection, "spend")} == {"b", "c"}


def test_sizes_has_every_table_once(connection: Connection) -> None:
    failing(connection)
    connection.execute("update autofill.cell set change = change")
    connection.execute("select pg_stat_force_next_flush()")
    sizes = {one["table"]: one for one in view(connection, "sizes")}
    assert {"row", "cell", "work", "completion", "attempt", "worker", "slot"} <= set(sizes)
    assert not [name for name in sizes if re.search(r"_default|_\d{4}w", name)]
    assert sizes["cell"]["total_bytes"] >= sizes["cell"]["index_bytes"] > 0
    assert sizes["completion"]["total_bytes"] > 8192
    assert sizes["cell"]["dead_tuples"] > 0


def test_oldest_transaction_names_who_holds_vacuum_back(connection: Connection, database: str) -> None:
    with psycopg.connect(database, application_name="a forgotten window") as holder:
        holder.execute("select txid_current()")
        for _ in range(5):
            connection.execute("select txid_current()")
        found = {one["application"]: one for one in view(connection, "oldest_transaction")}
        mine = found["a forgotten window"]
        assert (mine["kind"], mine["name"], mine["state"]) == (
            "backend",
            str(holder.info.backend_pid),
            "idle in transaction",
        )
        assert mine["transactions"] >= 5
        assert 0 <= mine["age"] < 100
        holder.rollback()
    assert "a forgotten window" not in {one["application"] for one in view(connection, "oldest_transaction")}


def test_the_models_are_made_again_in_place_of_the_old(connection: Connection) -> None:
    create_models(connection)
    assert view(connection, "lane") == []
