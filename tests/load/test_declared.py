"""What a collection declares as filling it, looked at again: a file, a query, a feed, a folder."""

from pathlib import Path

import pytest

from cell_engine.errors import BadValueError
from cell_engine.load import LoadError
from cell_engine.load.declared import refresh, sync_source
from cell_engine.specs.compile import compile_text
from cell_engine.specs.sources import Source
from cell_engine.store.applying import apply
from cell_engine.store.collections import Collection, find_collection
from cell_engine.store.database import Connection
from tests.load.test_feeds import SPEC as NEWS
from tests.load.test_feeds import item, rss, serving

SPEC = """
namespace: test
name: goods
key: code
{declares}
columns:
  - {{name: code, type: text}}
  - {{name: price, type: number}}
  - {{name: b, type: text, kind: function, deps: [code], function: {{name: "tests.functions:upper"}}}}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled_files: None) -> Path:
    monkeypatch.setenv("AUTOFILL_FILES", str(tmp_path))
    return tmp_path


def declare(connection: Connection, declares: str) -> Collection:
    apply(connection, compile_text(SPEC.format(declares=declares)), actor="test")
    return find_collection(connection, "test/goods")


def counts(connection: Connection, goods: Collection) -> tuple[int, int, int, int]:
    [done] = refresh(connection, goods, actor="cron")
    assert done.synced is not None
    return done.synced.inserted, done.synced.updated, done.synced.deleted, done.synced.unchanged


def test_a_declared_file_is_all_there_is(connection: Connection, place: Path) -> None:
    goods = declare(connection, "source: exports/goods.csv")
    (place / "exports").mkdir()
    file = place / "exports" / "goods.csv"
    file.write_text("code,price\na,1\nb,2\nc,3\n")
    assert counts(connection, goods) == (3, 0, 0, 0)
    assert counts(connection, goods) == (0, 0, 0, 3)
    file.write_text("code,price\na,1\nb,5\nd,4\n")
    assert counts(connection, goods) == (1, 1, 1, 1)
    file.write_text("code,price\na,1\n")
    with pytest.raises(LoadError, match=r"goods.csv: it lacks 2 of the 3 rows of test/goods, more than 50%"):
        refresh(connection, goods, actor="cron")
    assert sync_source(connection, goods, Source("exports/goods.csv"), actor="ann", any_deletes=True).deleted == 2
    file.unlink()
    with pytest.raises(LoadError, match=r"^exports/goods.csv: .*there"):
        refresh(connection, goods, actor="cron")


def test_no_source_leads_out_of_the_places_that_are_allowed(connection: Connection, place: Path) -> None:
    (place / "out.csv").symlink_to("/etc/hostname")
    with pytest.raises(LoadError, match="link"):
        refresh(connection, declare(connection, "source: out.csv"), actor="cron")
    with pytest.raises(BadValueError, match="not allowed: AUTOFILL_FILES allows"):
        refresh(connection, declare(connection, "source: /etc/hostname"), actor="cron")


def test_a_declared_query_is_asked_where_the_environment_says(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    goods = declare(connection, "source: {connection: shop, query: \"select 'x' as code, 1.5 as price\"}")
    with pytest.raises(BadValueError, match="AUTOFILL_SOURCE_SHOP is not set"):
        refresh(connection, goods, actor="cron")
    monkeypatch.setenv("AUTOFILL_SOURCE_SHOP", database)
    assert counts(connection, goods) == (1, 0, 0, 0)


def test_a_feed_and_a_folder_are_looked_at_each(
    connection: Connection, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOFILL_FETCH_ALLOW", "127.0.0.1")
    (place / "in").mkdir()
    (place / "in" / "a.txt").write_text("a")
    with serving() as site:
        url = site.put("/feed", rss(item(1)), content_type="application/rss+xml", etag='"1"')
        spec = NEWS.replace(
            "key: id", f"key: id\nfeed: {url}\nfiles: {{root: in, columns: {{file: path, digest: digest}}}}"
        ).replace("columns:\n  -", "columns:\n  - {name: file, type: file}\n  - {name: digest, type: text}\n  -")
        apply(connection, compile_text(spec), actor="test")
        news = find_collection(connection, "demo/news")
        feed, folder = refresh(connection, news, actor="cron")
        assert feed.synced is not None
        assert folder.synced is not None
        assert (feed.synced.inserted, folder.synced.inserted) == (1, 1)
        feed, folder = refresh(connection, news, actor="cron")
        assert feed.synced is None
        assert folder.synced is not None
        assert folder.synced.changes == 0


def test_what_declares_nothing_cannot_be_refreshed(connection: Connection) -> None:
    with pytest.raises(BadValueError, match="declares no source, feed or files with columns"):
        refresh(connection, declare(connection, ""), actor="cron")
