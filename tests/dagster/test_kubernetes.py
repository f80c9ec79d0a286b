"""What `deploy/` makes of Kubernetes: the instance loads, and the launcher builds the job of a run."""

import json
import re
from pathlib import Path
from typing import Any

import dagster as dg
import kubernetes
import pytest
import yaml
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.launcher import LaunchRunContext
from dagster._core.origin import DEFAULT_DAGSTER_ENTRY_POINT, JobPythonOrigin, RepositoryPythonOrigin
from dagster_k8s import K8sRunLauncher

from autofill_defs.definitions import defs
from autofill_defs.instance import environment
from cell_engine.cli.services import worker
from cell_engine.kinds.registry import JOB_TYPES
from cell_engine.settings import Settings
from deploy.instance import instance as instance_text

PROJECT = Path(__file__).resolve().parents[2]
DEPLOY = PROJECT / "deploy"
IMAGE = "registry.example/autofill-dagster:1"
PASSWORD = "hunter2"


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, kubernetes.client.V1Job]]:
    """The jobs that Kubernetes was asked for, with their namespaces."""
    jobs: list[tuple[str, kubernetes.client.V1Job]] = []

    class Api:  # where the cluster would be
        def __init__(self, api_client: object) -> None: ...

        def create_namespaced_job(self, body: kubernetes.client.V1Job, namespace: str, **_: object) -> None:
            jobs.append((namespace, body))

    monkeypatch.setattr(kubernetes.config, "load_incluster_config", lambda: None)
    monkeypatch.setattr(kubernetes.client, "BatchV1Api", Api)
    return jobs


def test_the_launcher_builds_the_job_of_a_run_of_ours(
    created: list[tuple[str, kubernetes.client.V1Job]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOFILL_HOME", str(tmp_path))
    monkeypatch.setenv("AUTOFILL_KUBERNETES_NAMESPACE", "autofill")
    monkeypatch.setenv("AUTOFILL_DATABASE_URL", f"postgresql://u:{PASSWORD}@db.example/autofill")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)  # so that its storage is no PostgreSQL
    (tmp_path / "dagster.yaml").write_text(instance_text())
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert isinstance(instance.run_launcher, K8sRunLauncher)
        assert instance.run_monitoring_enabled
        assert instance.run_monitoring_max_resume_run_attempts == 0
        assert instance.run_retries_max_retries == 5
        job = defs().resolve_job_def("demo__packages")
        repository = RepositoryPythonOrigin(
            executable_path="/opt/autofill/bin/python",
            code_pointer=ModuleCodePointer("autofill_defs.definitions", "defs"),
            container_image=IMAGE,
            entry_point=DEFAULT_DAGSTER_ENTRY_POINT,
            container_context={},
        )
        run = instance.create_run_for_job(job, job_code_origin=JobPythonOrigin("demo__packages", repository))
        instance.run_launcher.launch_run(LaunchRunContext(dagster_run=run, workspace=None))
        [(namespace, made)] = created
    manifest: dict[str, Any] = kubernetes.client.ApiClient().sanitize_for_serialization(made)
    assert namespace == "autofill"
    assert PASSWORD not in json.dumps(manifest)
    assert manifest["metadata"]["name"] == f"dagster-run-{run.run_id}"
    assert manifest["spec"]["backoffLimit"] == 0  # tried again as a run, which takes its dispatch over
    pod = manifest["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert labels["app.kubernetes.io/part-of"] == "collection-autofill"
    assert (labels["dagster/job"], labels["dagster/run-id"]) == ("demo__packages", run.run_id)
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 60
    assert (pod["spec"]["serviceAccountName"], pod["spec"]["automountServiceAccountToken"]) == ("default", False)
    [container] = pod["spec"]["containers"]
    assert container["image"] == IMAGE
    assert container["args"][:3] == ["dagster", "api", "execute_run"]
    assert run.run_id in container["args"][3]
    assert '"InstanceStorage"' in container["args"][3]  # a run is told the instance, and it has our storage
    given = {one["name"]: one["value"] for one in container["env"]}
    assert given["DAGSTER_EVENT_BATCH_SIZE"] == "1000"  # as the storage of ours sets it
    assert given["DAGSTER_HOME"] == "/opt/autofill/dagster"
    assert container["envFrom"] == [{"secretRef": {"name": "autofill"}}]
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    assert container["securityContext"]["runAsNonRoot"]


def test_the_instance_differs_from_the_local_one_in_where_runs_are_alone() -> None:
    local, there = yaml.safe_load((PROJECT / "dagster.yaml").read_text()), yaml.safe_load(instance_text())
    assert there["storage"] == local["storage"]
    assert {key for key in there if there[key] != local.get(key)} == {"run_launcher", "run_monitoring", "compute_logs"}


def test_every_dagster_process_of_the_chart_has_the_environment_of_an_installation() -> None:
    values = yaml.safe_load((DEPLOY / "values.yaml").read_text())
    [code] = values["dagster-user-deployments"]["deployments"]
    local = environment(Settings(), "postgresql:///none")
    secret = {"AUTOFILL_DATABASE_URL", "AUTOFILL_DAGSTER_DATABASE_URL"}
    for process in (values["dagsterWebserver"], values["dagsterDaemon"], code):
        given = {one["name"]: one.get("value") for one in process["env"]}
        assert local.keys() - secret <= given.keys()
        same = local.keys() - secret - {"DAGSTER_HOME", "AUTOFILL_HOME"}
        assert {name: given[name] for name in same} == {name: local[name] for name in same}
        assert process["envSecrets"] == [{"name": "autofill"}]
        assert process["podSecurityContext"]["runAsNonRoot"]
        assert process["livenessProbe"]
    assert values["dagsterDaemon"]["livenessProbe"]["exec"]["command"] == ["dagster-daemon", "liveness-check"]
    web = values["dagsterWebserver"]
    port = web["service"]["port"]  # the chart's webserver listens on it
    assert port >= 1024  # for any user, without a capability
    for probe in (web["livenessProbe"], web["readinessProbe"]):
        assert probe["httpGet"] == {"path": "/server_info", "port": port}


def test_the_engines_processes_serve_every_job_type_and_are_given_longer_than_their_drain() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "engine.yaml").read_text()))
    served: list[str] = []
    for one in documents:
        pod = one["spec"]["template"]["spec"]
        [container] = pod["containers"]
        assert container["securityContext"]["runAsNonRoot"]
        command, *rest = container["args"]
        if command == "migrate":
            continue
        assert {"name": "AUTOFILL_HEALTH_ADDRESS", "value": "0.0.0.0"} in container["env"]
        assert (container["livenessProbe"]["httpGet"]["path"], container["readinessProbe"]["httpGet"]["path"]) == (
            "/live",
            "/ready",
        )
        if command == "worker":
            served += rest[1::2]
            drain = worker.__defaults__[2]  # type: ignore[index]
            assert (drain, pod["terminationGracePeriodSeconds"]) == (60.0, 75)
    assert sorted(served) == sorted(JOB_TYPES)


@pytest.mark.parametrize("name", ["worker", "dagster"])
def test_images_install_by_hash_run_as_nobody_in_particular_and_hold_no_secret(name: str) -> None:
    text = (DEPLOY / f"Containerfile.{name}").read_text()
    assert re.findall(r"^USER (\S+)", text, re.M) == ["10001"]
    lock = f"requirements-{name}.lock"
    assert f"COPY {lock} " in text
    for install in re.findall(r"pip install .*", text):
        assert "--require-hashes" in install or "--no-index --no-deps" in install
    assert not re.search(r"PASSWORD|API_KEY|SECRET|DATABASE_URL", text)
    assert ("dagster==" in (PROJECT / lock).read_text()) == (name == "dagster")
    # What both images have is the same, and what the tests have run with.
    assert set(re.findall(r"^\S+==\S+", (PROJECT / lock).read_text(), re.M)) <= set(
        re.findall(r"^\S+==\S+", (PROJECT / "requirements.lock").read_text(), re.M)
    )
