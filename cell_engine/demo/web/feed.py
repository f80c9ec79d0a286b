"""The demo `feed`: entries become rows; then one is new and one has changed, and only these two are computed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from xml.sax.saxutils import escape

from cell_engine.demo import editions
from cell_engine.demo.stage import ACTOR, Stage
from cell_engine.demo.web.website import Website
from cell_engine.kinds.web.guard import Guard
from cell_engine.load.feed import FeedSynced, sync_feed
from cell_engine.stack.ports import LOOPBACK, remembered_port

_FIRST = datetime(2026, 1, 5, 9, tzinfo=UTC)
_ENTRIES = (
    ("Crane repaired", "The crane at the north quay lifts forty tons again."),
    ("New timetable", "The ferry leaves every hour from the first of the month."),
    ("Storm warning", "Wind of nine is expected, and boats stay in the harbour."),
    ("Auction", "The old pilot boat is sold to whoever offers most."),
    ("Opening hours", "The harbour office is open from eight to four."),
)
_CHANGING = 4
_KEPT = 3


def play(stage: Stage) -> list[str]:
    found: list[str] = []
    edition = editions.current(stage.home)
    with Website(remembered_port(stage.home.parent.parent, "demo feed"), "application/rss+xml") as site:
        site.put({"/feed.xml": _feed(edition)})
        with stage.round(f"The entries of {site.origin}/feed.xml become rows."):
            _sync(stage, site)
        stage.show("title", "published", "summary", "gist")

        site.put({"/feed.xml": _feed(editions.next_after(stage.home, edition))})
        with stage.round("One entry is new, one has changed."):
            synced = _sync(stage, site).synced
        stage.show("title", "published", "summary", "gist")
        changes = (0, 0) if synced is None else (synced.inserted, synced.updated)
        calls = stage.took.calls if stage.took is not None else 0
        if (*changes, calls) != (1, 1, 2):
            found.append(f"one entry was new and one had changed: {changes} were found, {calls} calls made")

        again = _sync(stage, site)
        stage.screen.say(f"Asked once more, the server says that nothing has changed: body sent: {again.body}")
        if again.body or again.synced is not None:
            found.append("a feed that had not changed was read again")
    return found + stage.problems()


def _sync(stage: Stage, site: Website) -> FeedSynced:
    # The site is on loopback, which nothing but this demo may ask.
    guard = Guard.of([LOOPBACK])
    with stage.connect() as connection:
        return sync_feed(connection, stage.watched.collection, f"{site.origin}/feed.xml", actor=ACTOR, guard=guard)


def _feed(edition: int) -> str:
    entries = [(f"n{number}", title, text, number) for number, (title, text) in enumerate(_ENTRIES)]
    if edition:
        id_, title, text, number = entries[_CHANGING]
        entries[_CHANGING] = (id_, title, text.removesuffix(".") + f", by notice number {edition}.", number)
    for extra in range(max(1, edition - _KEPT + 1), edition + 1):
        text = f"A ship came in with cargo number {extra}, and was unloaded at once."
        entries.append((f"ship-{extra}", f"Ship {extra}", text, len(_ENTRIES) + extra))
    items = "".join(
        f'<item><guid isPermaLink="false">{id_}</guid><title>{escape(title)}</title>'
        f"<description>{escape(text)}</description>"
        f"<pubDate>{format_datetime(_FIRST + timedelta(days=number))}</pubDate></item>"
        for id_, title, text, number in reversed(entries)
    )
    return f'<?xml version="1.0"?><rss version="2.0"><channel><title>Harbour news</title>{items}</channel></rss>'
