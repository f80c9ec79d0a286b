"""What a run says in Dagster: progress lines, and the metadata of materializations."""

from collections.abc import Iterable, Sequence
from typing import Any

import dagster as dg

from cell_engine.prices import as_dollars, spent
from cell_engine.specs.text import Json, shorten
from cell_engine.store.batches import Batch
from cell_engine.store.reading import FAILED, PartitionOutcome, Progress, ShownCell

PREVIEW_ROWS = 5
_REJECTED_SHOWN = 20
_CELL_CHARACTERS = 120


def progress_line(progress: Progress, before: int, elapsed: float) -> str:
    """`before` is the cells that had ended when the run began to wait, `elapsed` seconds ago."""
    bound = "at most " if progress.is_bound else ""
    share = f" ({100 * progress.done / progress.aim:.0f} %)" if progress.aim and not bound else ""
    parts = [f"dispatch {progress.id}: {progress.done:,} of {bound}{progress.aim:,} cells{share}"]
    if progress.failed:
        parts.append(f"failed: {_counts(progress.failed)}")
    if progress.work:
        parts.append(f"rows in work: {_counts(progress.work)}")
    if progress.rows_ahead:
        parts.append(f"rows ahead: {progress.rows_ahead:,}")
    if progress.tokens_in or progress.tokens_out:
        parts.append(f"tokens: {progress.tokens_in:,} in, {progress.tokens_out:,} out")
        parts.append(f"cost: {spent(progress.cost, progress.unpriced)}")
    if progress.paused_at is not None and progress.pause_reason is not None:
        parts.append(f"paused: {progress.pause_reason}")
    if before < progress.done < progress.total:
        parts.append(f"about {elapsed * (progress.total - progress.done) / (progress.done - before):,.0f} s left")
    return "; ".join(parts)


def dispatch_metadata(progress: Progress, away: float) -> dict[str, Any]:
    """Of the whole run, on each of its materializations. Interruptions (a worker or the database died, the call was
    made again) are neither failures nor attempts; `away` is the seconds that PostgreSQL was waited for."""
    seconds = (progress.ended_at - progress.created_at).total_seconds() if progress.ended_at is not None else 0.0
    calls = dict(progress.attempts)
    return {
        "dispatch": progress.id,
        "seconds": round(seconds, 1),
        "calls": sum(calls.values()),
        "interrupted_calls": calls.get("interrupted", 0),
        "saved_calls": sum(progress.saved.values()),
        "saved_tokens": progress.saved_tokens_in + progress.saved_tokens_out,
        "run_cost_usd": as_dollars(progress.cost) or 0.0,
        "saved_usd": as_dollars(progress.saved_cost) or 0.0,
        "seconds_without_database": round(away, 1),
    }


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
                    cell.model or "",
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
