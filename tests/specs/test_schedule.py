"""Schedules and sources in a collection's YAML: what is taken, what is refused where, and what they change."""

import pytest

from cell_engine.errors import SpecError
from cell_engine.specs.compile import compile_text
from cell_engine.specs.compiled import CompiledSpec
from cell_engine.specs.loading import Loading
from cell_engine.specs.schedule import Schedule, check_cron
from cell_engine.specs.sources import Source
from cell_engine.specs.version import Column

DAILY = "mode: cron, cron: '0 6 * * *'"


def compiled(column: str = "", collection: str = "") -> CompiledSpec:
    return compile_text(
        f"namespace: n\nname: c\n{collection}\ncolumns:\n  - {{name: a, type: url}}\n"
        f"  - {{name: b, type: text, kind: fetch, deps: [a], {column}}}\n"
    )


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("mode: cron", "6: .* mode: cron needs its schedule: say cron: .* mode: never"),
        ("cron: '0 6 * * *'", "6: .* cron goes with mode: cron"),
        ("mode: never, cron: '0 6 * * *'", "cron goes with mode: cron"),
        ("timezone: UTC", "timezone is that of a cron, and there is none"),
        ("mode: cron, cron: 6", "cron: expected text, got 6: put it in quotes"),
        ("mode: cron, cron: '0 6 * *'", "has 4 fields, not five: minute, hour"),
        ("mode: cron, cron: '0 6 * * * *'", "has 6 fields"),
        ("mode: cron, cron: '@daily'", "has 1 fields"),
        ("mode: cron, cron: '60 6 * * *'", "'60' is no minute of a cron: it takes .*, 0 to 59"),
        ("mode: cron, cron: '0 24 * * *'", "'24' is no hour"),
        ("mode: cron, cron: '0 6 0 * *'", "'0' is no day"),
        ("mode: cron, cron: '0 6 * jnu *'", "'jnu' is no month .* jan to dec"),
        ("mode: cron, cron: '0 6 * * 5L'", "'5l' is no weekday"),
        ("mode: cron, cron: '1,,2 6 * * *'", "'' is no minute"),
        ("mode: cron, cron: '٣ 6 * * *'", "is no minute"),
        ("mode: cron, cron: '0 22-2 * * *'", "the hour goes backwards; write two ranges, 22-23,0-2"),
        ("mode: cron, cron: '*/90 * * * *'", "a minute has steps of 1 to 59"),
        ("mode: cron, cron: '*/0 * * * *'", "a minute has steps of 1 to 59"),
        ("mode: cron, cron: '0 6 30-31 feb *'", "never comes: no such month has a day 30"),
        ("mode: cron, cron: '0 6 31 4,6 *'", "never comes"),
        (f"{DAILY}, timezone: Europe/Roma", "'Europe/Roma' is no time zone: .* did you mean 'Europe/Rome'?"),
    ],
)
def test_a_schedule_that_is_none_is_refused_with_its_line(column: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        compiled(column)


@pytest.mark.parametrize(
    ("collection", "message"),
    [
        ("refresh: {cron: '0 6 * * *'}", "3: refresh: of what"),
        ("feed: https://a.example/f\nkey: a\nrefresh: {}", "'refresh.cron' is missing"),
        ("key: a\nsource: a.csv\nrefresh: {cron: '0 6 * *'}", "5: refresh.cron: .* has 4 fields"),
        ("source: a.csv", "3: source: its rows are told apart by a key"),
        ("key: a\nsource: ../a.csv", "leads elsewhere"),
        ("key: a\nsource: {connection: shop}", "a file, or a connection with its query"),
        ("key: a\nsource: {connection: 'postgresql://u:secret@h/d', query: select 1}", "AUTOFILL_SOURCE_<NAME>"),
        ("key: a\nsource: a.csv\nfeed: https://a.example/f", "4: source: it is all there is, and rows of feed"),
    ],
)
def test_a_source_that_cannot_be_refreshed_is_refused(collection: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as raised:
        compiled(collection=collection)
    assert "secret" not in str(raised.value).split("AUTOFILL_SOURCE")[0]


@pytest.mark.parametrize("cron", ["0 6 L * *", "*/15 8-18 * * mon-fri", "0 6 29 feb *", "0 6 31 2 mon", "5/20 * * * *"])
def test_ordinary_crons_are_taken(cron: str) -> None:
    assert check_cron(f" {cron}  ") == cron


def test_a_schedule_is_no_part_of_the_definition_and_is_one_of_the_version() -> None:
    specs = [compiled(), compiled("mode: never"), compiled(DAILY), compiled(f"{DAILY}, timezone: Europe/Rome")]
    assert len({spec.columns[1].hash for spec in specs}) == 1
    assert len({spec.hash for spec in specs}) == 4
    column = specs[3].bind({"a": 1, "b": 2})[1]
    assert column.schedule == Schedule("0 6 * * *", "Europe/Rome")
    assert Column.from_json(column.to_json()) == column


def test_what_says_nothing_of_schedules_is_the_version_it_was() -> None:
    assert "schedule" not in compiled().columns[1].normalized
    assert compiled().loading.normalized == {}


def test_a_version_of_before_there_were_schedules_still_loads() -> None:
    stored = compiled("mode: never").bind({"a": 1, "b": 2})[1].to_json() | {"mode": "cron"}
    assert Column.from_json(stored).schedule is None


def test_sources_and_their_refresh_survive_being_stored() -> None:
    loading = compiled(
        collection="key: a\nsource: {connection: shop, query: select 1}\nrefresh: {cron: '0 6 * * *'}"
    ).loading
    assert Loading.from_json(loading.bind({"a": 7})) == Loading(
        key=(7,), source=Source(connection="shop", query="select 1"), refresh=Schedule("0 6 * * *", "UTC")
    )
    assert compiled(collection="key: a\nsource: in/a.csv").loading.source == Source(file="in/a.csv")
