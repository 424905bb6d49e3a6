"""What fedlens is made of: a CycloneDX list of packages and a report of their licences.

    python -m tools.sbom --out build/sbom

Reads the packages that are installed beside fedlens, those that it needs and those that these need;
looks nothing up. Fails where a licence is not known, or forbids a use that Apache-2.0 allows.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import uuid
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "fedlens"
EXTRAS = ("datasets", "export", "postgres", "ray", "traces")
CLASSIFIER = "License :: OSI Approved :: "
FORBIDDEN = re.compile(r"(?<!L)GPL|affero|non-?commercial|cc-by-nc", re.IGNORECASE)
LESSER = re.compile(r"LGPL|lesser|library general", re.IGNORECASE)
SAID_ELSEWHERE = {
    "pgserver": "Apache-2.0",
    "uv": "MIT OR Apache-2.0",
}
"""Licences that a package states in its files but not in its metadata."""


def needed(name: str, extras: tuple[str, ...]) -> dict[str, Distribution]:
    """Every installed package that ``name`` with ``extras`` needs, itself included, by its name."""
    found: dict[str, Distribution] = {}
    waiting = [(name, extras)]
    while waiting:
        package, wanted = waiting.pop()
        key = canonicalize_name(package)
        try:
            made = found.setdefault(key, distribution(package))
        except PackageNotFoundError:
            continue  # of an extra or a system that is not here
        for text in made.requires or ():
            required = Requirement(text)
            if _applies(required, wanted) and canonicalize_name(required.name) not in found:
                waiting.append((required.name, tuple(required.extras)))
    return dict(sorted(found.items()))


def _applies(required: Requirement, extras: tuple[str, ...]) -> bool:
    if required.marker is None:
        return True
    return any(required.marker.evaluate({"extra": extra}) for extra in ("", *extras))


def licence_of(made: Distribution) -> str:
    """What a package says of its licence in its metadata; empty where it says nothing."""
    data = made.metadata
    if expression := data.get("License-Expression"):
        return str(expression)
    classified = [c for c in data.get_all("Classifier") or () if c.startswith(CLASSIFIER)]
    if classified:
        return "; ".join(c.removeprefix(CLASSIFIER) for c in classified)
    text = str(data.get("License") or "").strip()
    first = text.splitlines()[0] if text else ""
    return first[:80] or SAID_ELSEWHERE.get(canonicalize_name(made.name), "")


def component(made: Distribution) -> dict[str, Any]:
    """A package as CycloneDX has it."""
    name = canonicalize_name(made.name)
    place = f"pkg:pypi/{name}@{made.version}"
    licence = licence_of(made)
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": place,
        "name": name,
        "version": made.version,
        "purl": place,
    }
    if licence:
        found["licenses"] = [{"license": {"name": licence}}]
    return found


def sbom(packages: dict[str, Distribution]) -> dict[str, Any]:
    """The list, CycloneDX 1.6; its serial number goes by its content."""
    own, *parts = [packages[ROOT], *(made for key, made in packages.items() if key != ROOT)]
    components = [component(made) for made in parts]
    content = json.dumps([component(own), components], sort_keys=True)
    names = {key: component(made)["bom-ref"] for key, made in packages.items()}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"component": {**component(own), "type": "application"}},
        "components": components,
        "dependencies": [
            {
                "ref": names[key],
                "dependsOn": sorted({names[n] for n in _direct(made) if n in names}),
            }
            for key, made in packages.items()
        ],
    }


def _direct(made: Distribution) -> Iterator[str]:
    extras = EXTRAS if canonicalize_name(made.name) == ROOT else ()
    for text in made.requires or ():
        required = Requirement(text)
        if _applies(required, extras):
            yield canonicalize_name(required.name)


def objections(packages: dict[str, Distribution]) -> list[str]:
    """Packages whose licence is not known or does not go with Apache-2.0, a line each."""
    lines = []
    for name, made in packages.items():
        licence = licence_of(made)
        if not licence:
            lines.append(f"{name} {made.version}: its metadata state no licence")
        elif FORBIDDEN.search(licence) and not LESSER.search(licence) and " OR " not in licence:
            lines.append(f"{name} {made.version}: {licence}")
    return lines


def report(packages: dict[str, Distribution]) -> str:
    """A table of packages and licences."""
    rows = [f"| {name} | {made.version} | {licence_of(made)} |" for name, made in packages.items()]
    return "\n".join(["| package | version | licence |", "|---|---|---|", *rows]) + "\n"


def main() -> int:
    """Write both files; 1 where a licence is not known or does not go."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=Path("build/sbom"), help="folder")
    out: Path = parser.parse_args().out
    packages = needed(ROOT, EXTRAS)
    out.mkdir(parents=True, exist_ok=True)
    (out / "fedlens.cdx.json").write_text(json.dumps(sbom(packages), indent=1) + "\n")
    (out / "licences.md").write_text(report(packages))
    found = objections(packages)
    sys.stdout.write(
        f"{len(packages)} packages in {out}\n" + "".join(f"{line}\n" for line in found)
    )
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
