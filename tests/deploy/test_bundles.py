"""A node takes bundles that bring no code, and others only where it knows their hash."""

from __future__ import annotations

import hashlib
import io
import zipfile

import pytest
from flwr.cli.build import build_fab_from_disk
from hypothesis import given
from hypothesis import strategies as st

from fedlens.deploy.bundles import COMPONENTS, LARGEST, bundle_problem
from fedlens.server.config.tree import Config
from fedlens.simulations.transports.flower_app import COMPONENTS as SIMULATED
from fedlens.simulations.transports.flower_app import write_app

pytestmark = pytest.mark.law("deployment: nodes run the code they agreed to")


@pytest.fixture
def bundle(tmp_path) -> bytes:
    """As Flower makes it of the app that an operator submits."""
    return build_fab_from_disk(write_app(tmp_path, Config(), {"run.name": "a"}, COMPONENTS))


def judged(content: bytes, trusted=(), declared=None) -> str | None:
    return bundle_problem(content, declared or hashlib.sha256(content).hexdigest(), trusted)


def with_files(bundle: bytes, **files: bytes) -> bytes:
    held = io.BytesIO(bundle)
    with zipfile.ZipFile(held, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/"), content)
    return held.getvalue()


def test_a_bundle_without_code_is_taken(bundle):
    assert judged(bundle) is None


@pytest.mark.parametrize(
    "name", ["client__app.py", "sitecustomize.py", "torch.py", "data.pth", "x"]
)
def test_a_bundle_with_a_file_of_its_own_is_refused_until_its_hash_is_trusted(bundle, name):
    content = with_files(bundle, **{name: b"import os"})
    assert "files of its own" in judged(content)
    assert judged(content, [hashlib.sha256(content).hexdigest().upper()]) is None
    assert judged(content, [hashlib.sha256(bundle).hexdigest()]) is not None


def test_content_that_is_not_what_the_server_says_is_refused(bundle):
    trusted = [hashlib.sha256(b"other").hexdigest()]
    assert "hash" in judged(bundle, trusted, declared=trusted[0])


def test_other_components_than_those_of_a_deployment_are_refused(tmp_path):
    content = build_fab_from_disk(write_app(tmp_path, Config(), {}, SIMULATED))
    assert "other code" in judged(content)


def test_a_second_file_of_one_name_or_a_bomb_is_refused(bundle):
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = with_files(bundle, **{"pyproject.toml": b""})
    assert "larger" in judged(twice)
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pyproject.toml", b"#" * (LARGEST + 1))
    assert "larger" in judged(held.getvalue())


@given(st.binary(max_size=200))
def test_noise_is_refused(content):
    assert judged(content) is not None


@given(text=st.text(max_size=60))
def test_any_other_project_is_refused(text):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("pyproject.toml", text.encode("utf-8", "replace"))
    assert judged(held.getvalue()) is not None


def test_a_bundle_that_is_damaged_anywhere_is_refused_in_words(tmp_path):
    import hashlib
    import io
    import zipfile

    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pyproject.toml", "[tool.flwr.app.components]\nserverapp = 'x'\n" * 9)
    whole = made.getvalue()
    for place in range(len(whole)):
        for content in (whole[:place], whole[:place] + b"\xff" + whole[place + 1 :]):
            said = bundle_problem(content, hashlib.sha256(content).hexdigest(), ())
            assert isinstance(said, str)
