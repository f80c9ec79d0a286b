"""The checks of a collection's computed columns: error rate, evidence, freshness. They read the database alone.

All of a collection's are one step, which asks set-wise: a few statements, however many columns and batches there are.
A check has one verdict and no partition, so bad batches are named in its metadata. In a run over some batches
it judges those: what blocks the table of a new batch is nothing that an old one did.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import dagster as dg
import psycopg
from dagster._utils.schedules import reverse_cron_string_iterator

from autofill_defs.check_settings import CheckModel
from autofill_defs.defined import DefinedCollection
from autofill_defs.engine import engine
from cell_engine.estimate.drawing import choose_of
from cell_engine.specs.answer_shape import needs_evidence
from cell_engine.specs.compiled import SpecColumn
from cell_engine.specs.version import Column, Version
from cell_engine.store.batches import Batch, all_batches
from cell_engine.store.collections import Collection, find_collection, load_version
from cell_engine.store.database import Connection
from cell_engine.store.quality import Evidence, FailedCells, Waiting, counted_cells, evidence_of, failed_cells, waiting
from cell_engine.store.reading import FAILED

T = TypeVar("T")

ERROR_RATE, EVIDENCE, FRESHNESS = "error_rate", "evidence", "freshness"

STATEMENT_TIMEOUT = 20.0
"""Seconds; a look is a few statements."""

_SAMPLE_ROWS = 5_000
_BATCHES_NAMED = 20


def build_checks(defined: DefinedCollection) -> dg.Definitions:
    """The checks, and the job that runs them by themselves; `check_sensor` asks every hour."""
    if not defined.computed:
        return dg.Definitions()
    specs = list(check_specs(defined))

    @dg.multi_asset_check(
        name=f"check_{defined.identifier}",
        specs=specs,
        can_subset=True,
        description=f"Looks at the cells of {defined.full_name}, in the database. Calls no model, and costs nothing.",
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        with engine("dagster checks", STATEMENT_TIMEOUT) as connection:
            yield from judge(connection, defined, context.selected_asset_check_keys, _run_batches(context, defined))

    job = dg.define_asset_job(
        f"{defined.identifier}__checks",
        selection=dg.AssetSelection.checks(*checks.check_keys),
        executor_def=dg.in_process_executor,
        tags=dict(defined.tags),
        description=f"Checks {defined.full_name}. Calls no model.",
    )
    return dg.Definitions(asset_checks=[checks], jobs=[job])


def has_blocking(defined: DefinedCollection) -> bool:
    """Whether a failed check keeps the table from being made."""
    return any(_settings(defined, name).blocking for name in (ERROR_RATE, EVIDENCE, FRESHNESS))


def _settings(defined: DefinedCollection, name: str) -> CheckModel:
    settings: CheckModel = getattr(defined.checks, name)
    return settings


def check_specs(defined: DefinedCollection) -> Iterator[dg.AssetCheckSpec]:
    """All of a collection's checks."""
    for column in defined.computed:
        yield from _specs(defined, column)


def _specs(defined: DefinedCollection, column: SpecColumn) -> Iterator[dg.AssetCheckSpec]:
    checks = defined.checks
    described = {
        ERROR_RATE: f"At most {_max_error_rate(defined):.1%} of its cells are in error.",
        EVIDENCE: f"At least {checks.evidence.min:.1%} of its cells have a quote that stands in an input.",
        FRESHNESS: {
            "on_change": f"Nothing that is due waits for longer than {checks.freshness.within}.",
            "cron": f"It was refreshed when its schedule said, within {checks.freshness.within}.",
            "never": "When it was last asked for: it is computed only then. Never fails.",
        }[column.mode],
    }
    if not needs_evidence(column.settings):
        del described[EVIDENCE]
    for name, description in described.items():
        yield dg.AssetCheckSpec(
            name,
            asset=defined.column_key(column.name),
            description=description,
            blocking=_settings(defined, name).blocking,
        )


def _max_error_rate(defined: DefinedCollection) -> float:
    declared = defined.checks.error_rate.max
    return defined.max_error_rate if declared is None else declared


def _severity(defined: DefinedCollection, name: str) -> dg.AssetCheckSeverity:
    settings = _settings(defined, name)
    is_error = settings.blocking or name == ERROR_RATE if settings.severity is None else settings.severity == "error"
    return dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN


@dataclass(frozen=True)
class _Looked:
    """What the checks of a collection go by. `scope`: the run's batches, by key; None: all. Of `cells` None: there are
    too many to count, and rows stand for them. None of the others: it took too long to find out."""

    collection: Collection
    version: Version
    batches: Sequence[Batch]
    scope: frozenset[str] | None
    cells: dict[tuple[int, str], int] | None
    failed: Sequence[FailedCells] | None
    evidence: Sequence[Evidence] | None
    waiting: dict[int, Waiting] | None


def judge(
    connection: Connection, defined: DefinedCollection, keys: Iterable[dg.AssetCheckKey], scope: frozenset[str] | None
) -> Iterator[dg.AssetCheckResult]:
    """The verdicts on the checks `keys`, over the batches of `scope` (by key); None: over all."""
    looked = _look(connection, defined, scope)
    by_key = {defined.column_key(column.name): column for column in defined.computed}
    for key in sorted(keys, key=lambda one: (one.asset_key.path, one.name)):
        column = by_key[key.asset_key]
        now = looked.version.by_name.get(column.name)
        found: _Found
        if now is None or now.kind is None:
            found = (True, f"version {looked.version.number} has no such column", {})
        elif key.name == ERROR_RATE:
            found = _error_rate(looked, now, _max_error_rate(defined))
        elif key.name == EVIDENCE:
            found = _evidence(looked, now.id, defined.checks.evidence.min)
        else:
            found = _freshness(looked, now.id, column, defined.checks.freshness.seconds)
        passed, description, metadata = found
        yield dg.AssetCheckResult(
            passed=bool(passed),
            asset_key=key.asset_key,
            check_name=key.name,
            # What is not known is no reason to stop anything.
            severity=dg.AssetCheckSeverity.WARN if passed is None else _severity(defined, key.name),
            description=description,
            metadata=metadata,
        )


_Found = tuple[bool | None, str, dict[str, Any]]


def _run_batches(context: dg.AssetCheckExecutionContext, defined: DefinedCollection) -> frozenset[str] | None:
    """The batches of the run, by key; None for one without partitions: all of them."""
    tags = context.run.tags
    one = tags.get("dagster/partition")
    first = tags.get("dagster/asset_partition_range_start", one)
    last = tags.get("dagster/asset_partition_range_end", one)
    known = list(context.instance.get_dynamic_partitions(defined.full_name))
    if first not in known or last not in known:
        return None
    return frozenset(known[known.index(first) : known.index(last) + 1])


def _look(connection: Connection, defined: DefinedCollection, scope: frozenset[str] | None) -> _Looked:
    collection = find_collection(connection, defined.full_name)
    version = load_version(connection, collection.id)
    batches = [batch for batch in all_batches(connection, collection.id) if scope is None or batch.key in scope]
    keys = None if scope is None else sorted(scope)
    quoting = [column.id for column in version.computed if needs_evidence(column.settings)]
    ranges = [(batch.first_row, batch.last_row) for batch in batches if batch.rows]
    return _Looked(
        collection,
        version,
        batches,
        scope,
        _in_time(lambda: counted_cells(connection, collection.id, keys)),
        _in_time(lambda: failed_cells(connection, collection.id, sorted(FAILED), keys)),
        _in_time(lambda: evidence_of(connection, collection.id, quoting, choose_of(ranges, _SAMPLE_ROWS))),
        _in_time(lambda: waiting(connection, collection.id)),
    )


def _in_time(ask: Callable[[], T]) -> T | None:
    """None for what the database does not answer within its statement's time."""
    try:
        return ask()
    except psycopg.errors.QueryCanceled:
        return None


_UNKNOWN = f"Not known: no answer within {STATEMENT_TIMEOUT:.0f} s"


def _error_rate(looked: _Looked, column: Column, most: float) -> _Found:
    if looked.failed is None:
        return None, _UNKNOWN, {}
    classes: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for one in looked.failed:
        if one.column_id == column.id:
            classes[one.error_class] += one.cells
            failed[one.batch] += one.cells
    cells = {
        batch.key: batch.rows if looked.cells is None else looked.cells.get((column.id, batch.key), 0)
        for batch in looked.batches
    }
    total = sum(cells.values())
    rate = failed.total() / max(total, 1)
    bad = {key: count / max(cells.get(key, 0), 1) for key, count in failed.items()}
    counted = "rows loaded, too many cells to count" if looked.cells is None else "cells computed"
    metadata = {
        "error_rate": rate,
        "failed": failed.total(),
        "cells": total,
        "counted": counted,
        **({"failed_by_class": dg.MetadataValue.json(dict(classes))} if classes else {}),
        **_bad({key: share for key, share in bad.items() if share > most}, worst_first=True),
        **_scope(looked),
    }
    if rate <= most:
        return True, f"{failed.total():,} of {total:,} cells are in error: {rate:.1%}", metadata
    retry = " ".join(f"--class {name}" for name in sorted(classes))
    return (
        False,
        f"{failed.total():,} of {total:,} cells are in error: {rate:.1%}, more than {most:.1%}. To try them again: "
        f"`autofill retry {looked.collection.full_name} {retry} --column {column.name}`",
        metadata,
    )


def _evidence(looked: _Looked, column_id: int, least: float) -> _Found:
    if looked.evidence is None:
        return None, _UNKNOWN, {}
    found = [one for one in looked.evidence if one.column_id == column_id]
    answers, quoted = sum(one.answers for one in found), sum(one.quoted for one in found)
    unsupported = sum(one.unsupported for one in found)
    asked = answers + unsupported
    rate = quoted / asked if asked else 1.0
    shares = {one.batch: one.quoted / (one.answers + one.unsupported) for one in found}
    metadata = {
        "evidence_rate": rate,
        "answers": answers,
        "with_a_quote": quoted,
        "unsupported_share": unsupported / asked if asked else 0.0,
        "with_a_quote_found_nowhere": sum(one.unverified for one in found),
        "rows_looked_at": min(_SAMPLE_ROWS, sum(batch.rows for batch in looked.batches)),
        **_bad({key: share for key, share in shares.items() if share < least}, worst_first=False),
        **_scope(looked),
    }
    return rate >= least, f"{rate:.1%} of {asked:,} cells have a quote that stands in an input", metadata


def _freshness(looked: _Looked, column_id: int, column: SpecColumn, within: int) -> _Found:
    if looked.waiting is None:
        return None, _UNKNOWN, {}
    one = looked.waiting[column_id]
    metadata: dict[str, Any] = {"mode": column.mode, "rows_queued": one.rows}
    if one.since is not None and one.age is not None:
        metadata |= {"waiting_since": dg.MetadataValue.timestamp(one.since), "waiting_seconds": round(one.age, 1)}
    if one.refreshed_at is not None:
        metadata |= {"refreshed_at": dg.MetadataValue.timestamp(one.refreshed_at), "dispatch": one.dispatch_id}
    last = "never" if one.refreshed_at is None else f"{one.refreshed_at:%Y-%m-%d %H:%M %Z}"
    if column.mode == "on_change":
        age = one.age or 0.0
        paused = ", paused" if one.paused and not one.rows else ""
        waits = (
            f"the longest wait is {timedelta(seconds=round(age))}{paused}" if one.age is not None else "nothing waits"
        )
        return age <= within, waits, metadata
    if column.mode == "never" or column.schedule is None:
        return True, f"last asked for: {last}", metadata
    cron, timezone = column.schedule.cron, column.schedule.timezone
    ticks = reverse_cron_string_iterator((one.now - timedelta(seconds=within)).timestamp(), cron, timezone)
    due = next(ticks)
    metadata |= {"cron": cron, "timezone": timezone, "was_due": dg.MetadataValue.timestamp(due)}
    if due < one.applied_at or not any(batch.rows for batch in looked.batches):
        return True, "its schedule has not come yet", metadata
    passed = one.refreshed_at is not None and one.refreshed_at >= due
    return passed, f"due at {due:%Y-%m-%d %H:%M %Z}, last refreshed: {last}", metadata


def _bad(shares: dict[str, float], *, worst_first: bool) -> dict[str, Any]:
    """The batches that would fail by themselves, the worst of them by name."""
    if not shares:
        return {"bad_partitions": 0}
    named = sorted(shares.items(), key=lambda one: one[1], reverse=worst_first)[:_BATCHES_NAMED]
    return {
        "bad_partitions": len(shares),
        "worst_partitions": dg.MetadataValue.json({key: round(share, 4) for key, share in named}),
    }


def _scope(looked: _Looked) -> dict[str, Any]:
    return {"batches": len(looked.batches), "of_the_run": looked.scope is not None}
