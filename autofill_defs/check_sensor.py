"""The hourly look at a collection's checks: evaluations without a run.

A schedule would write a run record each hour for each collection: a Runs page of a few dozen collections would show
little else.
"""

from collections.abc import Iterator

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData

from autofill_defs.checks import STATEMENT_TIMEOUT, check_specs, judge
from autofill_defs.defined import DefinedCollection
from autofill_defs.engine import engine
from autofill_defs.versions import apply_if_unknown

_EVERY = 3600


def build_checks_sensor(defined: DefinedCollection) -> list[dg.SensorDefinition]:
    """None for a collection that computes nothing."""
    if not defined.computed:
        return []

    @dg.sensor(
        name=f"{defined.identifier}__checks",
        minimum_interval_seconds=_EVERY,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"The checks of {defined.full_name}, every hour, over all of its batches. Starts no run, calls no "
        f"model. The job `{defined.identifier}__checks` asks at once.",
    )
    def checks(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        events = list(_evaluations(context.instance, defined))
        failed = sum(not event.passed for event in events)
        return dg.SensorResult(
            asset_events=events,
            # Without a word of its own a tick would say that it was empty.
            skip_reason=dg.SkipReason(f"checks: {len(events):,}, of which failed or not known: {failed:,}"),
        )

    return [checks]


def _evaluations(instance: dg.DagsterInstance, defined: DefinedCollection) -> Iterator[dg.AssetCheckEvaluation]:
    specs = {spec.key: spec for spec in check_specs(defined)}
    # Before the cells are looked at: what is materialized meanwhile shows its checks as not evaluated.
    latest = {key: _latest(instance, key) for key in {spec.asset_key for spec in specs.values()}}
    with engine("dagster checks", STATEMENT_TIMEOUT) as connection:
        apply_if_unknown(connection, defined)
        for one in judge(connection, defined, specs, None):
            assert one.asset_key is not None and one.check_name is not None
            yield dg.AssetCheckEvaluation(
                asset_key=one.asset_key,
                check_name=one.check_name,
                passed=one.passed,
                metadata=one.metadata,
                target_materialization_data=latest[one.asset_key],
                severity=one.severity,
                description=one.description,
                blocking=specs[dg.AssetCheckKey(one.asset_key, one.check_name)].blocking,
            )


def _latest(instance: dg.DagsterInstance, key: dg.AssetKey) -> AssetCheckEvaluationTargetMaterializationData | None:
    """What the UI compares with: whether the check has seen the asset's latest materialization."""
    records = instance.fetch_materializations(key, limit=1).records
    if not records:
        return None
    [record] = records
    return AssetCheckEvaluationTargetMaterializationData(
        storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp
    )
