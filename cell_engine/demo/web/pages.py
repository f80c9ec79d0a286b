"""The demo `pages`: a site is fetched, two of its pages change, and it is fetched again by force. An unchanged page
costs no body and no call of the model; a changed one recomputes its row, and no other."""

from __future__ import annotations

import csv
from html import escape

from cell_engine.demo import editions
from cell_engine.demo.stage import ACTOR, Stage
from cell_engine.demo.web.website import Website
from cell_engine.load import sync_file
from cell_engine.stack.ports import remembered_port
from cell_engine.store.collections import find_collection
from cell_engine.store.demands import RangeScope, dispatch
from cell_engine.store.usage import usage

_TOPICS = (
    ("ferry", "The ferry to the island leaves every hour from the old pier."),
    ("museum", "The museum of tides shows how the harbour has moved in three centuries."),
    ("market", "The fish market opens before dawn and is empty by nine."),
    ("library", "The library lends maps, boots and binoculars beside its books."),
    ("lighthouse", "The lighthouse can be climbed on Sundays, all two hundred steps of it."),
    ("bakery", "The bakery sells a rye bread that keeps for a week at sea."),
    ("school", "The school teaches every child to sail before they leave it."),
    ("theatre", "The theatre plays in the shipyard, between two hulls."),
    ("weather", "The weather station reports wind of five from the west."),
    ("harbour", "The harbour office counts forty boats at their moorings."),
)
_CHANGING = ("weather", "harbour")


def play(stage: Stage) -> list[str]:
    found: list[str] = []
    edition = editions.current(stage.home)
    with Website(remembered_port(stage.home.parent.parent, "demo pages"), "text/html") as site:
        site.put(_pages(edition))
        with stage.round(f"A site of {len(_TOPICS)} pages at {site.origin} becomes a collection."):
            _load(stage, site)
        stage.show("url", "page", "gist")
        stage.screen.say(f"bodies sent: {site.bodies}, answered as unchanged: {site.spared}")

        site.put(_pages(editions.next_after(stage.home, edition)))
        before = _model_calls(stage)
        with stage.round(f"{' and '.join(_CHANGING)} have changed. Every page is asked for again (reprocess --force)."):
            _fetch_all(stage)
        stage.show("url", "page", "gist")
        calls = _model_calls(stage) - before
        stage.screen.say(
            f"bodies sent: {site.bodies}, answered as unchanged: {site.spared}; calls of the model: {calls}"
        )
        if (site.bodies, calls) != (len(_CHANGING), len(_CHANGING)):
            found.append(f"{len(_CHANGING)} pages had changed: {site.bodies} bodies were sent, {calls} calls made")
    return found + stage.problems()


def _pages(edition: int) -> dict[str, str]:
    pages: dict[str, str] = {}
    for topic, sentence in _TOPICS:
        if topic in _CHANGING and edition:
            sentence = sentence.removesuffix(".") + f", as of bulletin number {edition}."
        body = f"<h1>{topic.title()}</h1><p>{escape(sentence)}</p><p>Everybody is welcome at the {topic}.</p>"
        pages[f"/{topic}"] = f"<html><head><title>{topic.title()}</title></head><body><main>{body}</main></body></html>"
    return pages


def _load(stage: Stage, site: Website) -> None:
    file = stage.home / "pages.csv"
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["url"])
        writer.writerows([f"{site.origin}{path}"] for path in site.pages)
    with stage.connect() as connection:
        sync_file(connection, stage.watched.collection, file, actor=ACTOR, any_deletes=True)


def _fetch_all(stage: Stage) -> None:
    with stage.connect() as connection:
        collection = find_collection(connection, stage.watched.collection.full_name)
        dispatch(
            connection,
            collection.id,
            RangeScope(((1, collection.next_row - 1),)),
            columns=[stage.watched.version.by_name["page"].id],
            force=True,
            reason="reprocess",
            actor=ACTOR,
        )


def _model_calls(stage: Stage) -> int:
    collection = stage.watched.collection
    found = stage.store(
        lambda connection: usage(connection, ["column"], namespace=collection.namespace, collection=collection.name)
    )
    return sum(one.calls for one in found)
