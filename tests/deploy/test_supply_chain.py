"""The image is made of named bytes, containers have the rights that they use, and the bill of
materials lists the packages."""

from __future__ import annotations

import json
import re
from importlib.metadata import requires, version
from typing import Any, Final

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.files import DEPLOY, compose, documents, pods
from tools import sbom

DIGEST: Final = re.compile(r"[a-z]+:[\w.-]+@sha256:[0-9a-f]{64}\Z")
PINNED: Final = re.compile(
    r"^([\w.-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)
LOCK: Final = DEPLOY / "app" / "requirements.txt"
PORT: Final = "http"


def dockerfile() -> str:
    return (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


def test_base_images_are_named_by_their_digest() -> None:
    images = re.findall(r"^FROM (\S+)", dockerfile(), re.MULTILINE)
    others = [one["image"] for one in compose()["services"].values() if "build" not in one]

    assert len(set(images)) == 1, "both stages have the same Python"
    assert others
    assert all(DIGEST.match(image) for image in [*images, *others])


def test_packages_of_the_image_are_installed_by_hash() -> None:
    installs = re.findall(r"pip install (.*?)(?: \\)?$", dockerfile(), re.MULTILINE)
    text = LOCK.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("#")]
    pinned = "".join(match[0] for match in PINNED.finditer(text))

    assert len(installs) == 2
    assert all("--require-hashes" in one or "--no-index --no-deps" in one for one in installs)
    assert pinned == "".join(lines), "each package has a version and a hash, and there is nothing else"


def test_the_lock_of_the_image_has_all_that_forebay_needs_there() -> None:
    """So that `make lock` is not forgotten when a dependency is added or its lowest version is raised."""
    locked = {canonicalize_name(name): found for name, found, _ in PINNED.findall(LOCK.read_text("utf-8"))}
    needed = [
        one
        for one in map(Requirement, requires("forebay") or ())
        if one.marker is None
        or any(
            one.marker.evaluate({"extra": extra, "python_version": "3.13"})
            for extra in ("postgres", "redis", "server")
        )
    ]

    assert len(needed) >= 6
    for one in needed:
        assert locked[canonicalize_name(one.name)] in one.specifier, one


def test_every_container_of_compose_is_without_capabilities() -> None:
    for name, one in compose()["services"].items():
        assert one["cap_drop"] == ["ALL"], name
        assert "cap_add" not in one, name
        assert one["security_opt"] == ["no-new-privileges:true"], name


def test_only_the_service_can_be_reached_and_no_pod_reaches_the_metadata_of_the_cloud() -> None:
    policies = documents(DEPLOY / "kubernetes" / "network.yaml")
    labels = {
        name: one["spec"]["template"]["metadata"]["labels"]
        for path in (DEPLOY / "kubernetes").glob("*.yaml")
        for one in documents(path)
        if (name := one["metadata"]["name"] if "metadata" in one else "") in dict(pods())
        and "template" in one.get("spec", {})
    }
    assert labels.keys() == dict(pods()).keys()
    for name, own in labels.items():
        fitting = [one["spec"] for one in policies if fits(one, own)]
        ports = [port for one in fitting for rule in one["ingress"] for port in rule["ports"]]
        egress = [rule for one in fitting for rule in one.get("egress", ())]

        assert ports == ([{"protocol": "TCP", "port": PORT}] if name == "forebay-server" else []), name
        blocks = [to["ipBlock"] for rule in egress for to in rule["to"] if "ipBlock" in to]
        assert [one["cidr"] for one in blocks] == ["0.0.0.0/0", "::/0"], name
        assert all(one["except"] for one in blocks)
    [kustomization] = documents(DEPLOY / "kubernetes" / "kustomization.yaml")
    assert "network.yaml" in kustomization["resources"]


def fits(policy: Any, labels: dict[str, str]) -> bool:
    wanted: dict[str, str] = policy["spec"]["podSelector"]["matchLabels"]
    return wanted.items() <= labels.items()


def test_the_bill_of_materials_is_valid_and_lists_what_is_installed() -> None:
    text = sbom.text()

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    found = {one["purl"]: one for one in bill["components"]}
    assert bill["metadata"]["component"]["name"] == "forebay"
    for name in ("msgspec", "cryptography", "psycopg", "litestar", "grpcio"):
        assert f"pkg:pypi/{name}@{version(name)}" in found
    assert not [purl for purl in found if purl.startswith(("pkg:pypi/pytest@", "pkg:npm/vite@"))]
    [preact] = [one for purl, one in found.items() if purl.startswith("pkg:npm/preact@")]
    assert preact["hashes"][0]["alg"] == "SHA-512"
    needs = {one["ref"]: one.get("dependsOn", []) for one in bill["dependencies"]}
    assert preact["bom-ref"] in needs[bill["metadata"]["component"]["bom-ref"]]


def test_the_same_packages_give_the_same_bill() -> None:
    assert sbom.text() == sbom.text()
