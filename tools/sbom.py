"""Write the software bill of materials: the packages of `forebay[all]` that this environment has, and the npm
packages in the built dashboard, as CycloneDX JSON.

    python -m tools.sbom            write build/forebay.cdx.json
    python -m tools.sbom --print    print it instead

The same packages give the same bytes: the serial number is made from them, the time is that of the commit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64decode
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.dashboard import ROOT, SOURCE

OURS: Final = "forebay"
WRITTEN: Final = ROOT / "build" / "forebay.cdx.json"


def installed(name: str = OURS, extras: frozenset[str] = frozenset({"all"})) -> dict[str, set[str]]:
    """The packages that are installed for this one and its extras, by name, with what each needs itself.
    Packages that are needed on other platforms or Pythons only are left out."""
    found: dict[str, set[str]] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting: list[tuple[str, frozenset[str]]] = [(canonicalize_name(name), extras)]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        needs = list(_needs(*one))
        found.setdefault(one[0], set()).update(needed for needed, _ in needs if needed != one[0])
        waiting += needs
    return found


def _needs(name: str, extras: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    requirements = map(Requirement, distribution(name).requires or ())
    return [
        (canonicalize_name(one.name), frozenset(one.extras))
        for one in requirements
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras or {""})
    ]


def in_page() -> list[tuple[str, dict[str, Any]]]:
    """The npm packages in the page of the dashboard, by the lock file, without the tools of its build."""
    lock = json.loads((SOURCE / "package-lock.json").read_text(encoding="utf-8"))
    return [
        (path.removeprefix("node_modules/"), one)
        for path, one in lock["packages"].items()
        if path and not one.get("dev") and not one.get("optional")
    ]


def bill() -> Bom:
    """All of them, with what needs what."""
    needs = installed()
    components = {name: _python(distribution(name)) for name in needs}
    page = [_npm(name, one) for name, one in in_page()]
    ours = components[OURS]
    ours.type = ComponentType.APPLICATION
    rest = [one for name, one in components.items() if name != OURS] + page
    names = sorted(str(one.purl) for one in [ours, *rest])
    bom = Bom(
        components=rest,
        serial_number=uuid5(NAMESPACE_URL, "\n".join(names)),
        dependencies=[
            Dependency(
                components[name].bom_ref,
                [Dependency(components[other].bom_ref) for other in others]
                + [Dependency(one.bom_ref) for one in page if name == OURS],
            )
            for name, others in needs.items()
        ],
    )
    bom.metadata.component = ours
    bom.metadata.timestamp = _committed_at()
    return bom


def _python(found: Distribution) -> Component:
    name = canonicalize_name(found.name)
    purl = PackageURL("pypi", name=name, version=found.version)
    return Component(name=name, version=found.version, purl=purl, bom_ref=str(purl))


def _npm(name: str, locked: dict[str, Any]) -> Component:
    scope, _, short = name.rpartition("/")
    purl = PackageURL("npm", scope or None, short, locked["version"])
    digest = b64decode(locked["integrity"].removeprefix("sha512-")).hex()
    return Component(
        name=short,
        group=scope or None,
        version=locked["version"],
        purl=purl,
        bom_ref=str(purl),
        hashes=[HashType(alg=HashAlgorithm.SHA_512, content=digest)],
    )


def _committed_at() -> datetime:
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    if seconds is None:
        command = ["git", "log", "-1", "--format=%ct"]
        seconds = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return datetime.fromtimestamp(int(seconds), UTC)


def text() -> str:
    """The bill as JSON."""
    return JsonV1Dot6(bill()).output_as_string(indent=2)


def main() -> int:
    try:
        written = text()
    except PackageNotFoundError as exc:
        print(f"{exc.name} is not installed here: pip install 'forebay[all]'", file=sys.stderr)
        return 1
    if "--print" in sys.argv[1:]:
        print(written)
        return 0
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(written + "\n", encoding="utf-8")
    print(f"{WRITTEN.relative_to(ROOT)} lists {len(json.loads(written)['components'])} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
