"""Files of `deploy` pass real linters, and agree with the program that they start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import click
import kubernetes_validate
import pytest

from forebay.cli.main import main
from forebay.cli.settings import CONFIG, DJANGO_BACKEND, OUTBOX_DATABASE, PREFIX, SETTING_TYPES
from forebay.service.http.app import ROUTE_MODULES
from tests.deploy.files import (
    DEPLOY,
    GUIDE,
    Command,
    commands,
    compose,
    documents,
    manifests,
    ours_in_compose,
    pods,
    unit,
    units,
)

PROGRAMS: Final = Path(sys.executable).parent
WITHIN: Final = 120.0
# What a worker takes after its drain, and a server after its grace, to write down what was interrupted.
ROOM_SECONDS: Final = 10
VERSIONS: Final = ("1.33", "1.37")  # of Kubernetes
OTHERS: Final = {"Kustomization", "ScaledObject", "ServiceMonitor"}  # not of Kubernetes itself
SCALERS: Final = {"ScaledObject", "HorizontalPodAutoscaler"}
# What our units say. systemd passes over a word that it does not know, so one that is new is looked up first.
WORDS_OF_UNITS: Final = {
    "Unit": {"After", "Description", "StartLimitBurst", "StartLimitIntervalSec", "Wants"},
    "Install": {"WantedBy"},
    "Service": {
        *(
            "EnvironmentFile",
            "ExecStart",
            "Group",
            "KillMode",
            "KillSignal",
            "LimitNOFILE",
            "LockPersonality",
        ),
        *("NoNewPrivileges", "PrivateDevices", "PrivateTmp", "ProtectControlGroups", "ProtectHome"),
        *("ProtectKernelModules", "ProtectKernelTunables", "ProtectSystem", "Restart", "RestartSec"),
        *("RestrictSUIDSGID", "StateDirectory", "TimeoutStartSec", "TimeoutStopSec", "Type", "User"),
        "WorkingDirectory",
    },
}
STYLE: Final = (
    "{extends: default, rules: {line-length: {max: 130}, document-start: disable, "
    "comments: {min-spaces-from-content: 1}}}"
)


def lint(*words: str) -> None:
    done = subprocess.run(
        [PROGRAMS / words[0], *words[1:]],
        cwd=DEPLOY,
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dockerfile_is_right() -> None:
    lint("hadolint", "--failure-threshold", "style", "Dockerfile")


def test_the_yaml_files_are_right() -> None:
    lint("yamllint", "--strict", "-d", STYLE, ".")


def test_the_compose_file_fits_its_schema() -> None:
    lint("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml")


@pytest.mark.shows("R-SDK-17")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifests_fit_the_schemas_of_kubernetes(version: str) -> None:
    checked = 0
    for one in manifests():
        if one["kind"] not in OTHERS:
            kubernetes_validate.validate(one, version, strict=True)
            checked += 1

    assert checked >= 8


def test_a_manifest_that_is_wrong_would_be_found() -> None:
    [deployment] = [one for one in manifests() if one["kind"] == "Deployment"][:1]
    deployment["spec"]["replica"] = 2

    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(deployment, VERSIONS[-1], strict=True)


def test_kustomize_names_files_that_are_there_and_leaves_the_secret_out() -> None:
    [found] = documents(DEPLOY / "kubernetes" / "kustomization.yaml")

    assert all((DEPLOY / "kubernetes" / name).is_file() for name in found["resources"])
    assert "secret.example.yaml" not in found["resources"]
    assert [one["name"] for one in found["images"]] == [pods()[0][1]["containers"][0]["image"]]


@pytest.mark.shows("R-SDK-17")
@pytest.mark.parametrize("path", units(), ids=lambda path: path.name)
def test_the_units_are_right_for_systemd(path: Path, tmp_path: Path) -> None:
    service = unit(path)["Service"]
    assert service["EnvironmentFile"] == "/etc/forebay/forebay.env"
    assert set(unit(path).sections()) <= {"Unit", "Service", "Install"}
    for section, words in WORDS_OF_UNITS.items():
        if unit(path).has_section(section):
            assert set(unit(path)[section]) <= words, f"[{section}] of {path.name}"

    if shutil.which("systemd-analyze") is None:
        return  # the words were looked at; what it says of their values is said where there is one
    text = path.read_text(encoding="utf-8").replace("/srv/app/.venv/bin/forebay", str(PROGRAMS / "forebay"))
    copy = tmp_path / path.name
    copy.write_text(text, encoding="utf-8")
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    about_it = [line for line in (result.stdout + result.stderr).splitlines() if path.stem in line]
    assert about_it == []


def parsed(words: list[str]) -> click.Context:
    """A command line as the program reads it; raises UsageError for one that it does not take."""
    context = main.make_context("forebay", list(words), resilient_parsing=False)
    command: click.Command = main
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command, context = found, found.make_context(name, rest, parent=context)
    return context


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.where)
def test_every_command_line_is_one_of_ours(command: Command) -> None:
    context = parsed(command.words)

    assert context.args == []
    if context.info_name == "worker":
        assert context.params["app"] == "shop.tasks:app"
        assert (DEPLOY / "app" / "shop" / "tasks.py").is_file()
    if context.info_name == "server" and context.params["host"] != "127.0.0.1":
        assert context.params["require_keys"], "a server that others can reach asks for keys"
        assert context.params["certificate"] or context.params["behind_tls_proxy"], "keys go over TLS"


def test_a_wrong_command_line_would_be_found() -> None:
    with pytest.raises(click.UsageError, match="--thread-count"):
        parsed(["worker", "shop.tasks:app", "--thread-count", "4"])


def test_who_is_stopped_has_longer_than_it_takes() -> None:
    checked = 0
    for command in commands():
        named = {"worker": "--drain-timeout", "server": "--shutdown-timeout"}.get(command.words[0])
        if named is None or command.where in ("Dockerfile", "deployment.md"):
            continue
        assert command.stops_within is not None, command.where
        assert command.stops_within >= float(command.option(named)) + ROOM_SECONDS, command.where
        checked += 1

    assert checked == 6


@pytest.mark.shows("R-SDK-16")
def test_every_variable_is_a_setting() -> None:
    known = {CONFIG, OUTBOX_DATABASE, DJANGO_BACKEND, *(PREFIX + name.upper() for name in SETTING_TYPES)}
    files = [path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    found = {
        name
        for path in files
        for name in re.findall(r"\bFOREBAY_[A-Z_]+\b", path.read_text(encoding="utf-8"))
    }

    assert "FOREBAY_URL" in found
    # The one that a comment warns of is what Kubernetes would make of the name of a service.
    assert found - known == {"FOREBAY_SERVER_PORT"}


def test_probes_ask_what_the_service_answers_at_the_port_where_it_listens() -> None:
    paths = {path for part in ROUTE_MODULES for handler in part.ROUTES for path in handler.paths}
    [server] = [pod["containers"][0] for name, pod in pods() if name == "forebay-server"]
    [service] = [one for one in manifests() if one["kind"] == "Service"]
    port = int(server["args"][server["args"].index("--port") + 1])

    assert [one["containerPort"] for one in server["ports"]] == [port]
    assert [one["port"] for one in service["spec"]["ports"]] == [port]
    assert {one["targetPort"] for one in service["spec"]["ports"]} == {one["name"] for one in server["ports"]}
    probes = {kind: server[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {one["port"] for one in probes.values()} == {"http"}
    assert {one["path"] for one in probes.values()} <= paths
    assert probes["readinessProbe"]["path"] == "/health/ready"
    assert probes["livenessProbe"]["path"] == "/health/live"
    [monitor] = [one for one in manifests() if one["kind"] == "ServiceMonitor"]
    assert [(one["port"], one["path"]) for one in monitor["spec"]["endpoints"]] == [("http", "/metrics")]
    assert "/metrics" in paths


def test_compose_asks_for_health_where_its_server_listens() -> None:
    server = ours_in_compose()["server"]
    port = server["command"][server["command"].index("--port") + 1]

    assert server["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f"http://127.0.0.1:{port}/health/ready" in " ".join(server["healthcheck"]["test"])


def test_labels_lead_to_the_pods_that_are_meant() -> None:
    labels = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for one in manifests()
        if one["kind"] == "Deployment"
    }
    for one in manifests():
        if one["kind"] in ("Deployment", "PodDisruptionBudget"):
            wanted: dict[str, Any] = one["spec"]["selector"]["matchLabels"]
        elif one["kind"] == "Service":
            wanted = one["spec"]["selector"]
        else:
            continue
        assert wanted.items() <= labels[one["metadata"]["name"]].items()
    scaled = [one["spec"]["scaleTargetRef"]["name"] for one in manifests() if one["kind"] in SCALERS]
    assert scaled == ["forebay-worker", "forebay-worker"]


def test_no_container_is_root_and_nothing_is_written_to_the_image() -> None:
    [user] = re.findall(
        r"^USER (\d+):\d+$", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
    )
    for name, pod in pods():
        [container] = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["securityContext"]["runAsUser"] == int(user), name
        assert container["securityContext"]["readOnlyRootFilesystem"], name
        assert not container["securityContext"]["allowPrivilegeEscalation"], name
        assert "memory" in container["resources"]["limits"], name
        assert pod["enableServiceLinks"] is False, name
    for name, one in ours_in_compose().items():
        assert one["read_only"], name
    for path in units():
        assert unit(path)["Service"]["User"] != "root"
        assert unit(path)["Service"]["NoNewPrivileges"] == "yes"


def test_secrets_are_not_in_the_files() -> None:
    assert "POSTGRES_PASSWORD:?" in compose()["services"]["worker"]["environment"]["FOREBAY_URL"]
    assert os.path.isfile(GUIDE)
    for name, pod in pods():
        assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "forebay"}}], name
