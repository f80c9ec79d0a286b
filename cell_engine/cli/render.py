"""What people see: tables, progress, and text from anywhere made fit for a terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from cell_engine.prices import as_dollars, spent

if TYPE_CHECKING:
    from cell_engine.specs.version import Version
    from cell_engine.store.reading import Progress as DispatchProgress
    from cell_engine.store.reading import ShownCell, ShownInput

_PLAIN_WIDTH = 150  # of tables that go into a file or a CI log
_CELL_CHARACTERS = 200
_PLAIN_SECONDS = 2.0
_LEAST_WIDTH = 3
_STATUS_STYLES = {
    "ready": "green",
    "overridden": "cyan",
    "not_found": "magenta",
    "error": "red",
    "proposed": "magenta",
    "blocked": "yellow",
    "rejected": "yellow",
    "outdated": "yellow",
    "canceled": "yellow",
    "paused": "yellow",
    "queued": "blue",
    "waiting": "blue",
    "computing": "blue",
    "empty": "dim",
}
# What comes of a cell, where its own word would have to be explained.
_OUTCOMES = {"cached": "from the cache", "fresh": "up to date already", "unchanged": "answered as before"}
_STATUS_ORDER = {status: place for place, status in enumerate(_STATUS_STYLES)}


def console() -> Console:
    """Standard output as it is now. Cells are never markup, and nothing is highlighted by guess."""
    return Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)


def print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2, default=_json_default) + "\n")


def one_line(value: object, limit: int = _CELL_CHARACTERS) -> str:
    """A cell's value on one line: no control characters, which could steer the terminal, and no more than `limit`."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    cut = text[: limit * 4]
    line = " ".join("".join(character if character.isprintable() else " " for character in cut).split())
    return line if len(line) <= limit and len(cut) == len(text) else line[: limit - 1] + "…"


def rows_table(
    version: Version,
    inputs: Sequence[ShownInput],
    cells: Sequence[ShownCell],
    columns: Sequence[str],
    width: int,
) -> Table:
    """The rows of a page, one line each, of the named columns; what has no answer shows its status instead.

    `width` is the characters that there are for a line.
    """
    shown = [version.by_name[name] for name in columns]
    lines = {
        str(row_id): [_cell_text(by_column.get(column.id)) for column in shown]
        for row_id, by_column in rows_of(inputs, cells).items()
    }
    wanted = [
        max([cell_len(column.name), *(cell_len(line[place].plain) for line in lines.values())])
        for place, column in enumerate(shown)
    ]
    row_width = max([len("row"), *map(len, lines)])
    widths = fair_widths(wanted, width - row_width - 3 * len(columns) - 4)
    table = Table(header_style="bold")
    table.add_column("row", justify="right", style="dim", no_wrap=True, width=row_width)
    for column, column_width in zip(shown, widths, strict=True):
        table.add_column(
            column.name,
            overflow="ellipsis",
            no_wrap=True,
            width=column_width,
            justify="right" if column.type.name in ("integer", "number") else "left",
            header_style="bold" if column.kind is None else "bold magenta",
        )
    for row_id, line in lines.items():
        table.add_row(row_id, *line)
    return table


def fair_widths(wanted: Sequence[int], available: int) -> list[int]:
    """Columns that want little get it; the others share what is left evenly."""
    widths = [0] * len(wanted)
    left = max(available, _LEAST_WIDTH * len(wanted))
    for done, place in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        widths[place] = min(wanted[place], left // (len(wanted) - done))
        left -= widths[place]
    return widths


def rows_of(inputs: Sequence[ShownInput], cells: Sequence[ShownCell]) -> dict[int, dict[int, ShownInput | ShownCell]]:
    """Row id → column id → the cell as shown, in the order of the rows."""
    rows: dict[int, dict[int, ShownInput | ShownCell]] = {}
    both: Sequence[ShownInput | ShownCell] = [*inputs, *cells]
    for cell in both:
        rows.setdefault(cell.row_id, {})[cell.column_id] = cell
    return dict(sorted(rows.items()))


def status_table(version: Version, counts: Mapping[int, Mapping[str, int]]) -> Table:
    """Cells by column and status."""
    statuses = sorted({status for by_status in counts.values() for status in by_status}, key=_place)
    table = Table(header_style="bold")
    table.add_column("column")
    for status in statuses:
        table.add_column(Text(status, style=_STATUS_STYLES.get(status, "")), justify="right")
    for column in version.computed:
        by_status = counts.get(column.id, {})
        table.add_row(column.name, *(_number(by_status.get(status, 0)) for status in statuses))
    return table


def dispatches_table(dispatches: Iterable[DispatchProgress], version: Version) -> Table:
    table = Table(header_style="bold")
    for name, justify in (
        ("dispatch", "right"), ("asked by", "left"), ("why", "left"), ("columns", "left"), ("cells", "right"),
        ("outcomes", "left"), ("tokens", "right"), ("cost", "right"), ("started", "left"), ("took", "right"),
    ):  # fmt: skip
        table.add_column(name, justify="right" if justify == "right" else "left", no_wrap=name != "outcomes")
    for one in dispatches:
        names = [version.by_id[column].name for column in one.columns if column in version.by_id]
        table.add_row(
            str(one.id),
            one_line(one.actor, 40),
            one_line(one.reason, 40),
            one_line(", ".join(names) or "what changed", 40),
            f"{'≤ ' if one.is_bound else ''}{one.aim:,}",
            outcomes_line(one),
            f"{one.tokens_in + one.tokens_out:,}",
            spent(one.cost, one.unpriced) if one.tokens_in or one.unpriced else "",
            one.created_at.astimezone().strftime("%m-%d %H:%M:%S"),
            _took(one),
        )
    return table


def _took(one: DispatchProgress) -> str:
    if one.ended_at is None:
        return "canceled" if one.canceled_at is not None else "paused" if one.paused_at is not None else "open"
    canceled = "canceled, " if one.canceled_at is not None else ""
    return f"{canceled}{(one.ended_at - one.created_at).total_seconds():.1f} s"


def lanes_table(lanes: Iterable[Any]) -> Table:
    """The queue, of rows with the columns of the view `lane`."""
    table = Table(header_style="bold")
    for name in ("collection", "job type", "queued", "delayed", "computing", "oldest"):
        table.add_column(name, justify="right" if name in ("queued", "delayed", "computing") else "left")
    for lane in lanes:
        oldest = "" if lane.oldest is None else f"{lane.oldest.astimezone():%m-%d %H:%M:%S}"
        table.add_row(
            f"{lane.namespace}/{lane.collection}", lane.job_type,
            *(_number(count) for count in (lane.queued, lane.delayed, lane.computing)), oldest,
        )  # fmt: skip
    return table


def outcomes_line(progress: DispatchProgress) -> str:
    """What has come of a dispatch so far, such as "310 ready, 12 blocked, 3 in error (schema), 40 rows queued, about 2
    min left, $0.42"; and why it is paused, if it was by itself."""
    outcomes = sorted(progress.outcomes.items(), key=lambda one: _place(one[0]))
    ended = [
        f"{count:,} {f'in error ({outcome})' if outcome in progress.failed else _OUTCOMES.get(outcome, outcome)}"
        for outcome, count in outcomes
    ]
    saved = progress.saved_tokens_in + progress.saved_tokens_out
    if saved:
        worth = f" ({spent(progress.saved_cost, 0)})" if progress.saved_cost else ""
        ended.append(f"{saved:,} tokens{worth} saved")
    ahead = [
        f"{rows:,} {'row' if rows == 1 else 'rows'} {state}"
        for rows, state in ((progress.running, "running"), (progress.queued, "queued"), (progress.waiting, "waiting"))
        if rows
    ]
    left = [] if progress.eta is None or not ahead else [f"about {duration(progress.eta)} left"]
    cost = [spent(progress.cost, progress.unpriced)] if progress.cost or progress.unpriced else []
    paused = [f"paused: {progress.pause_reason}"] if progress.paused_at is not None and progress.pause_reason else []
    nothing = "nothing to do: no cell is what was asked for" if progress.only_if is not None else "nothing to do"
    return ", ".join(ended + ahead + left + cost + paused) or ("nothing yet" if progress.ended_at is None else nothing)


def progress_json(progress: DispatchProgress) -> dict[str, Any]:
    """All there is to say of a dispatch, for programs; `cost`, `saved_cost` and `max_cost` are dollars, `eta_seconds`
    null where it cannot be told."""
    derived = ("done", "aim", "failed", "running", "queued", "waiting", "superseded", "saved")
    facts = {name: getattr(progress, name) for name in (*progress.__slots__, *derived)}
    money = {name: as_dollars(facts[name]) for name in ("cost", "saved_cost", "max_cost")}
    return facts | money | {"eta_seconds": progress.eta}


def duration(seconds: float) -> str:
    """Roughly: "40 s", "3 min", "5.2 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Follower(Protocol):
    """Shows how far a dispatch is; `with` it, and `update` it as often as you like."""

    def __enter__(self) -> Follower: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def update(self, progress: DispatchProgress) -> None: ...


def follower(screen: Console, title: str) -> Follower:
    """A live bar on a terminal, else a plain line every now and then."""
    return LiveBar(screen, title) if screen.is_terminal else PlainLines(screen, title)


class LiveBar:
    def __init__(self, screen: Console, title: str) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[line]}"),
            TimeElapsedColumn(),
            console=screen,
        )
        self._task = self._progress.add_task(title, total=None, line="waiting for the first cells")

    def __enter__(self) -> LiveBar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def update(self, progress: DispatchProgress) -> None:
        self._progress.update(
            self._task, total=progress.aim or None, completed=progress.done, line=outcomes_line(progress), refresh=True
        )


class PlainLines:
    def __init__(self, screen: Console, title: str) -> None:
        self._screen = screen
        self._title = title
        self._line = ""
        self._at = float("-inf")

    def __enter__(self) -> PlainLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def update(self, progress: DispatchProgress) -> None:
        bound = "at most " if progress.is_bound else ""
        line = f"{self._title}: {progress.done:,} of {bound}{progress.aim:,} cells: {outcomes_line(progress)}"
        now = time.monotonic()
        if line != self._line and (progress.ended_at is not None or now - self._at >= _PLAIN_SECONDS):
            self._line, self._at = line, now
            self._screen.print(line, soft_wrap=True)


def proposed_of(cell: Any) -> Any:
    """The answer of a cell that waits for review; that there is none to be found, with the reason, is one."""
    reason = (cell.details or {}).get("not_found") if cell.proposed is None else None
    return cell.proposed if reason is None else f"not found: {reason}"


def _cell_text(cell: ShownInput | ShownCell | None) -> Text:
    if cell is None:
        return Text("")
    status = getattr(cell, "status", "overridden" if getattr(cell, "edited", False) else None)
    if cell.value is None and status not in (None, "ready", "overridden"):
        why = getattr(cell, "error", None) if status == "error" else None
        if status == "proposed":
            why = one_line(proposed_of(cell))
        if status == "not_found":
            why = (getattr(cell, "details", None) or {}).get("not_found")
        return Text(one_line(f"{status}: {why}" if why else status), style=_STATUS_STYLES.get(str(status), ""))
    # An answer that is being replaced is still the one shown, and looks like it.
    style = "" if status in (None, "ready") else _STATUS_STYLES.get(status, "")
    moved = "*" if getattr(cell, "inputs_moved", False) else ""
    return Text(moved + one_line(cell.value), style=style)


def _number(count: int) -> str:
    return f"{count:,}" if count else "·"


def _place(status: str) -> tuple[int, str]:
    return _STATUS_ORDER.get(status, len(_STATUS_ORDER)), status


def _json_default(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)
