"""The engine's own tables as Dagster knows them: the views for people that are made of them, and the rules they keep.

Views and rules are of the whole engine, not of a collection: each is asked once, however many collections there are.
"""

from collections.abc import Iterator

import dagster as dg
import psycopg

from autofill_defs.engine import engine
from cell_engine.store.database import Connection
from cell_engine.store.models import (
    Model,
    broken_rule,
    list_models,
    recreate_models,
    rule_description,
    rule_names,
    view_columns,
)

GROUP = "autofill"
ENGINE = dg.AssetKey(["autofill", "engine"])
"""Two parts: no collection's asset has so few."""

_MODELS_STATEMENT_TIMEOUT = 30.0
# Some rules read every cell: what takes longer than this is said to be not known.
_RULE_STATEMENT_TIMEOUT = 60.0
_ROWS_SHOWN = 20


def build_engine() -> dg.Definitions:
    """What a code location has once, beside its collections."""
    rules = _rules()
    job = dg.define_asset_job(
        "autofill__rules",
        selection=dg.AssetSelection.checks(*rules.check_keys),
        executor_def=dg.in_process_executor,
        description="Asks the database whether the rules hold that the engine keeps. Calls no model.",
    )
    hourly = dg.ScheduleDefinition(
        name="autofill__rules",
        job=job,
        cron_schedule="7 * * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="The rules, every hour.",
    )
    tables = dg.AssetSpec(
        ENGINE,
        description="The engine's tables: rows, cells, and the queue. Written by workers, at every moment.",
        group_name=GROUP,
        kinds={"postgres"},
        metadata={"dagster/table_name": "autofill.cell"},
    )
    return dg.Definitions(assets=[tables, _views()], asset_checks=[rules], jobs=[job], schedules=[hourly])


def _key(name: str) -> dg.AssetKey:
    return dg.AssetKey(["autofill", name])


def _views() -> dg.AssetsDefinition:
    models = list_models()

    @dg.multi_asset(
        name="autofill_views",
        specs=[_spec(model) for model in models],
        description="Makes the views of dbt_like_sql/models, all of them: those of one release go together.",
    )
    def views() -> Iterator[dg.MaterializeResult[None]]:
        with engine("dagster views", _MODELS_STATEMENT_TIMEOUT) as connection:
            recreate_models(connection)
            for model in models:
                yield dg.MaterializeResult(asset_key=_key(model.name), metadata=_metadata(connection, model))

    return views


def _spec(model: Model) -> dg.AssetSpec:
    deps = [_key(name) for name in model.refs] + ([ENGINE] if model.of_tables else [])
    columns = [dg.TableColumn(name, "unknown", description=text) for name, text in model.columns.items()]
    return dg.AssetSpec(
        _key(model.name),
        deps=deps,
        description=f"{model.description}\n\nA view: it shows what is, whenever it was made. `autofill migrate` makes "
        "it with each release; dbt_like_sql is also a dbt project.",
        group_name=GROUP,
        kinds={"sql", "postgres"},
        metadata={
            "dagster/table_name": f"autofill.{model.name}",
            **({"dagster/column_schema": dg.TableSchema(columns=columns)} if columns else {}),
        },
    )


def _metadata(connection: Connection, model: Model) -> dict[str, dg.TableSchema]:
    columns = [
        dg.TableColumn(name, kind, description=model.columns.get(name))
        for name, kind in view_columns(connection, model.name)
    ]
    return {"dagster/column_schema": dg.TableSchema(columns=columns)}


def _rules() -> dg.AssetChecksDefinition:
    names = rule_names()

    @dg.multi_asset_check(
        name="autofill_rules",
        specs=[dg.AssetCheckSpec(name, asset=ENGINE, description=rule_description(name)) for name in names],
        can_subset=True,
        description="The SQL tests of dbt_like_sql/tests, which find no row. `autofill check` asks the same.",
    )
    def rules(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        chosen = {key.name for key in context.selected_asset_check_keys}
        with engine("dagster rules", _RULE_STATEMENT_TIMEOUT) as connection:
            for name in names:
                if name in chosen:
                    yield _judged(connection, name)

    return rules


def _judged(connection: Connection, name: str) -> dg.AssetCheckResult:
    try:
        rows = broken_rule(connection, name)
    except psycopg.errors.QueryCanceled:
        return dg.AssetCheckResult(
            passed=False,
            check_name=name,
            asset_key=ENGINE,
            severity=dg.AssetCheckSeverity.WARN,
            description=f"Not known: no answer within {_RULE_STATEMENT_TIMEOUT:.0f} s. `autofill check` waits for it.",
        )
    return dg.AssetCheckResult(
        passed=not rows,
        check_name=name,
        asset_key=ENGINE,
        metadata={
            "rows": len(rows),
            **({"found": dg.MetadataValue.json([_shown(row) for row in rows[:_ROWS_SHOWN]])} if rows else {}),
        },
    )


def _shown(row: object) -> dict[str, object]:
    found: dict[str, object] = row._asdict()  # type: ignore[attr-defined]
    return {name: value if isinstance(value, int | str | None) else str(value) for name, value in found.items()}
