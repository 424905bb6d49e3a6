"""The list of packages is whole and in CycloneDX's form, and every licence is known."""

from __future__ import annotations

import re

import pytest

from tools.sbom import EXTRAS, ROOT, needed, objections, report, sbom


@pytest.fixture(scope="module")
def packages():
    return needed(ROOT, EXTRAS)


def test_what_is_needed_is_listed_with_what_that_needs(packages):
    assert {"fedlens", "flwr", "torch", "grpcio", "cryptography", "cffi"} <= set(packages)


def test_it_is_cyclonedx(packages):
    made = sbom(packages)
    assert (made["bomFormat"], made["specVersion"], made["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made["serialNumber"])
    references = [part["bom-ref"] for part in made["components"]]
    assert len(references) == len(set(references)) == len(packages) - 1
    known = {*references, made["metadata"]["component"]["bom-ref"]}
    for edge in made["dependencies"]:
        assert edge["ref"] in known and set(edge["dependsOn"]) <= known
    assert sbom(packages)["serialNumber"] == made["serialNumber"]


def test_every_licence_is_known_and_goes_with_ours(packages):
    assert objections(packages) == []
    assert report(packages).count("\n") == len(packages) + 2
