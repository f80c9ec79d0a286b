"""A snapshot is compared in one pass over it and over the rows, whatever the statistics say."""

import json
from typing import Any

import pytest

from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import apply
from cell_engine.store.collections import find_collection, load_version
from cell_engine.store.database import Connection, run, statement
from cell_engine.store.syncing import Incoming, Sync

ROWS = 3_000
SPEC = "{namespace: demo, name: shop, key: a, columns: [{name: a, type: text}, {name: b, type: integer}]}"


@pytest.mark.parametrize(("analyzed", "partial"), [(False, False), (True, True)])
def test_a_comparison_reads_each_side_once(connection: Connection, analyzed: bool, partial: bool) -> None:
    apply(connection, compile_text(SPEC), actor="me")
    collection = find_collection(connection, "demo/shop")
    version = load_version(connection, collection.id)
    connection.execute(
        "insert into autofill.row (collection_id, row_id, batch_id, inputs) "
        "select %s, n, 1, jsonb_build_object('1', 'code ' || n, '2', n) from generate_series(1, %s) as n",
        [collection.id, ROWS],
    )
    if analyzed:
        # the staging tables are empty then, as they are when autovacuum looks
        connection.execute("analyze autofill.row, autofill.incoming, autofill.difference")
    sync = Sync(connection, version, [1], source="s", actor="me")
    sync.stage([Incoming(n, {1: f"code {n}", 2: n + (n % 1000 == 0)}, ()) for n in range(1, ROWS + 1)])
    with connection.transaction(force_rollback=True):
        run(connection, "sync_set_wise")
        parameters = {"collection_id": collection.id, "sync": sync.number, **sync._keys, "partial": partial}
        for name in ("sync_repeated", "sync_compare"):
            explained = connection.execute(
                b"explain (analyze, format json, timing off) " + statement(name), parameters
            ).fetchone()
            assert explained is not None
            (found,) = explained
            text = json.dumps(found)
            assert "Nested Loop" not in text, text
            assert max(_read(found[0]["Plan"])) <= 2 * ROWS, text
    counts = sync.compare(partial=partial)
    assert (counts.incoming, counts.updates, counts.inserts, counts.deletes) == (ROWS, ROWS // 1000, 0, 0)


def _read(plan: dict[str, Any]) -> list[float]:
    """Tuples that each node gives, over all its loops, with those it reads and drops."""
    removed = sum(value for name, value in plan.items() if name.startswith("Rows Removed"))
    own = (plan["Actual Rows"] + removed) * plan["Actual Loops"]
    return [own, *(one for child in plan.get("Plans", ()) for one in _read(child))]
