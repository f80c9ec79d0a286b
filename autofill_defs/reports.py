"""What a run says in Dagster: progress lines, and the metadata of materializations."""

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import dagster as dg
import yaml

from autofill_defs.defined import DefinedCollection
from cell_engine.estimate import ColumnEstimate, Estimate
from cell_engine.prices import as_dollars, spent
from cell_engine.specs.text import Json, shorten
from cell_engine.store.batches import Batch
from cell_engine.store.reading import FAILED, ErrorExample, PartitionOutcome, Progress, ShownCell

PREVIEW_ROWS = 5
_REJECTED_SHOWN = 20
_CELL_CHARACTERS = 120
_BAR = 30

UNTOUCHED = frozenset({"fresh", "superseded", "deleted", "blocked", "waiting", "canceled"})
"""Outcomes of cells that a dispatch has left as they were."""

UNCHANGED = UNTOUCHED | {"unchanged"}
"""Those, and answers that are as they were: what a refresh by schedule makes no materialization of."""

SO_FAR = "so_far"
"""The metadata of what a dispatch had come to when it was reported before its end: it may go on."""


def progress_line(progress: Progress) -> str:
    """How far, what of it failed, what it has cost, and how long it will take at the pace of the last minute."""
    # What cascades to columns that nobody asked for counts as well, and comes on top of the total.
    total = max(progress.total, progress.done)
    if progress.only_if is None:
        share = f" ({100 * progress.done / total:.0f} %)" if total else ""
        parts = [f"dispatch {progress.id}: {progress.done:,} of {total:,} cells{share}"]
    else:  # how many it will find nobody knows
        parts = [f"dispatch {progress.id}: {progress.done:,} cells, found in {progress.rows:,} rows"]
    if progress.failed:
        parts.append(f"failed: {_counts(progress.failed)}")
    if progress.work:
        parts.append(f"rows in work: {_counts(progress.work)}")
    if progress.rows_ahead:
        parts.append(f"rows ahead: {progress.rows_ahead:,}")
    if progress.tokens_in or progress.tokens_out:
        parts.append(f"tokens: {progress.tokens_in:,} in, {progress.tokens_out:,} out")
        parts.append(f"cost: {spent(progress.cost, progress.unpriced)}")
    if progress.paused_at is not None and progress.ended_at is None:
        parts.append(f"paused: {progress.pause_reason or 'by somebody'}")
    if progress.eta is not None:
        parts.append(f"about {progress.eta:,.0f} s left")
    if progress.ended_at is not None:
        parts.append("ended")
    return "; ".join(parts)


def dispatch_metadata(progress: Progress, away: float) -> dict[str, Any]:
    """Of the whole run, on each of its materializations. Interruptions (a worker or the database died, the call was
    made again) are neither failures nor attempts; `away` is the seconds that PostgreSQL was waited for."""
    seconds = (progress.ended_at - progress.created_at).total_seconds() if progress.ended_at is not None else 0.0
    calls = dict(progress.attempts)
    # Not the unchanged: those were called themselves, and what reads them, which they spared, nobody has counted.
    saved = progress.saved["cached"] + progress.saved["fresh"]
    return {
        "dispatch": progress.id,
        "run_seconds": round(seconds, 1),
        "run_calls": sum(calls.values()),
        "run_interrupted_calls": calls.get("interrupted", 0),
        "run_saved_calls": saved,
        "run_saved_tokens": progress.saved_tokens_in + progress.saved_tokens_out,
        "run_cost_usd": as_dollars(progress.cost) or 0.0,
        "run_saved_usd": as_dollars(progress.saved_cost) or 0.0,
        "run_seconds_without_database": round(away, 1),
        **_over(progress),
        **({SO_FAR: True} if progress.ended_at is None else {}),
    }


def _over(progress: Progress) -> dict[str, Any]:
    """By how much it has cost more than it was to: calls in flight run to their end."""
    over = progress.cost - progress.max_cost if progress.max_cost is not None else 0
    return {"run_over_max_cost_usd": as_dollars(over)} if over > 0 else {}


def partition_metadata(batch: Batch, outcome: PartitionOutcome | None) -> dict[str, Any]:
    """Of one column of one batch: cells by outcome, failures by class, tokens and their cost."""
    outcomes = dict(outcome.outcomes) if outcome is not None else {}
    failed = {name: cells for name, cells in outcomes.items() if name in FAILED}
    metadata: dict[str, Any] = {
        "dagster/partition_row_count": batch.rows,
        "cells": sum(outcomes.values()),
        "failed": sum(failed.values()),
        "tokens_in": outcome.tokens_in if outcome is not None else 0,
        "tokens_out": outcome.tokens_out if outcome is not None else 0,
        "cost_usd": (as_dollars(outcome.cost) if outcome is not None else 0.0) or 0.0,
    }
    if outcome is not None and outcome.unpriced:
        metadata["calls_of_unknown_cost"] = outcome.unpriced
    metadata |= {name: cells for name, cells in sorted(outcomes.items()) if name not in FAILED}
    if failed:
        metadata["failed_by_class"] = dg.MetadataValue.json(failed)
    return metadata


def pace_metadata(seconds: float, cells: Sequence[int]) -> dict[str, Any]:
    """How fast a run's cells ended, from its dispatch to its end: as a number, which Dagster plots from run to run, and
    drawn over its time. As text: the UI drops images that are part of Markdown."""
    each = seconds / max(len(cells), 1)
    highest = max(cells, default=0)
    if not highest or not each:
        return {}
    lines = [
        f"{_clock(number * each):>8}  {_bar(count / highest):<{_BAR}}  {count / each:,.1f}"
        for number, count in enumerate(cells)
    ]
    return {
        "cells_per_second": round(sum(cells) / seconds, 2),
        "throughput": dg.MetadataValue.md(
            "```\n" + "\n".join([*lines, f"{_clock(seconds):>8}  cells a second"]) + "\n```"
        ),
    }


def duration_metadata(seconds: tuple[float, float, float]) -> dict[str, Any]:
    """How long a column's calls took in a run, in seconds."""
    return {f"call_seconds_p{one}": round(taken, 3) for one, taken in zip((50, 95, 99), seconds, strict=True)}


def errors_metadata(
    defined: DefinedCollection, column: str, batch: str, examples: Sequence[ErrorExample]
) -> dict[str, Any]:
    """A cell of each class of error in a column and batch, and the two ways to try them all again."""
    classes = sorted({one.error_class for one in examples})
    table = _table(("class", "row", "error"), ((one.error_class, str(one.row_id), one.error or "") for one in examples))
    chosen = " ".join(f"--class {one}" for one in classes)
    again = f"autofill retry {defined.full_name} {chosen} --column {column} --batch {shlex.quote(batch)}"
    config = {"ops": {f"fill_{defined.identifier}": {"config": {"error_classes": classes}}}}
    return {
        "errors": dg.MetadataValue.md(table),
        "retry": dg.MetadataValue.md(
            f"```\n{again}\n```\nor materialize this partition with the run config\n"
            f"```yaml\n{yaml.safe_dump(config, sort_keys=False)}```"
        ),
    }


def estimate_metadata(estimate: Estimate, column: ColumnEstimate | None) -> dict[str, Any]:
    """Of a dry run: one column's share, and what the whole would come to."""
    metadata: dict[str, Any] = {
        "dry_run": True,
        "cells": column.cells if column is not None else 0,
        "run_cells": estimate.cells,
        "run_cost_usd": as_dollars(estimate.cost) or 0.0,
        "run_cost_low_usd": as_dollars(estimate.low) or 0.0,
        "run_cost_high_usd": as_dollars(estimate.high) or 0.0,
        "sampled_rows": estimate.sampled,
        "rows": estimate.rows,
        "summary": on_one_line(estimate.summary),
    }
    if column is not None:
        metadata |= {
            "cells_at_least": column.least,
            "from_the_cache": column.cached,
            "tokens_in": column.tokens_in,
            "tokens_out": column.tokens_out,
            "model": column.model or "none",
            "basis": column.basis,
        }
        if column.cost is not None:
            metadata["cost_usd"] = as_dollars(column.cost)
    return metadata


def on_one_line(text: str) -> str:
    """The UI runs the lines of a text together."""
    return "; ".join(text.splitlines())


def preview(cells: Sequence[ShownCell]) -> dg.MarkdownMetadataValue:
    """The first cells of a column in a batch as a table."""
    return dg.MetadataValue.md(
        _table(
            ("row", "value", "status", "model"),
            (
                (
                    str(cell.row_id),
                    _said(cell),
                    cell.status,
                    "" if cell.status == "overridden" else cell.model or "",
                )
                for cell in cells
            ),
        )
    )


def rows_metadata(batch: Batch, path: str) -> dict[str, Any]:
    """Of a batch's rows: where they came from, and the lines that did not come along."""
    metadata: dict[str, Any] = {
        "dagster/partition_row_count": batch.rows,
        "source": batch.source,
        "path": dg.MetadataValue.path(path),
        "loaded_at": dg.MetadataValue.timestamp(batch.loaded_at),
        "rejected_lines": batch.rejected_rows,
    }
    if batch.rejected:
        shown = batch.rejected[:_REJECTED_SHOWN]
        metadata["rejected"] = dg.MetadataValue.md(
            _table(("line", "reason"), ((str(line), reason) for line, reason in shown))
        )
    return metadata


def _clock(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f}:{rest:04.1f}" if minutes < 60 else f"{minutes // 60:.0f}:{minutes % 60:02.0f}:{rest:02.0f}"


def _bar(share: float) -> str:
    eighths = round(share * _BAR * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def files_table(files: Sequence[tuple[str, int, int]]) -> dg.MarkdownMetadataValue:
    """Of a batch's files, some: name, rows, rejected lines."""
    shown = ((name, f"{rows:,}", f"{rejected:,}") for name, rows, rejected in files)
    return dg.MetadataValue.md(_table(("file", "rows", "rejected"), shown))


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


def _said(cell: ShownCell) -> str:
    """The value that is shown, or why there is none. What became of the answer under a person's value is neither."""
    if cell.value is not None or cell.status == "overridden":
        return _shown(cell.value)
    if cell.error is not None:
        return f"{cell.error_class}: {cell.error}"
    reason = (cell.details or {}).get("not_found")
    return f"not_found: {_shown(reason)}" if reason is not None else ""


def _shown(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else shorten(value)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str) -> str:
    """Text as one line of a Markdown table. Cells hold anything: no link, image or tag of theirs becomes one here."""
    flat = " ".join(text.split())
    if len(flat) > _CELL_CHARACTERS:
        flat = flat[: _CELL_CHARACTERS - 1] + "…"
    return "".join(f"\\{character}" if character in r"\|`*_[]<>!#" else character for character in flat)
