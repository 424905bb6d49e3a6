"""Laws of the house that a reader of the code could break without noticing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedlens.dashboard.widgets import grid, labeller

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "dashboard"
OTHERS = ("accountant", "client", "data", "diagnosis", "models", "server", "simulations", "store")


def calls(file: Path) -> Iterator[tuple[str, ast.Call]]:
    """Each call in a file with the last part of its name."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else ""
            yield getattr(function, "id", name), node


FILES = sorted(DASHBOARD.rglob("*.py"))


def test_there_are_files_to_check() -> None:
    assert {file.name for file in FILES} >= {"main.py", "images.py", "samples.py"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
@pytest.mark.law("7: pixels survive storage and display")
def test_images_are_lossless_and_none_is_ever_uploaded(file: Path) -> None:
    for name, call in calls(file):
        assert name not in {"file_uploader", "camera_input", "chat_input", "audio_input"}
        if name == "image":
            formats = [k.value for k in call.keywords if k.arg == "output_format"]
            assert [getattr(value, "value", None) for value in formats] == ["PNG"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_charts_and_tables_have_a_text_for_those_who_do_not_see_them(file: Path) -> None:
    for name, call in calls(file):
        if name in {"altair_chart", "dataframe", "image"}:
            assert "alt" in {keyword.arg for keyword in call.keywords}, f"{name}: {call.lineno}"


@pytest.mark.parametrize("name", [*grid.SCRIPTS, "matrix.js", "rows.js", *labeller.SCRIPTS])
def test_widgets_put_no_data_on_the_page_as_html_and_call_nobody(name: str) -> None:
    script = (DASHBOARD / "widgets" / name).read_text(encoding="utf-8")
    addresses = re.findall(r"fetch\((.{0,8})", script)
    assert set(addresses) <= {"`desk/${", "address("}
    assert set(re.findall(r"return `(gallery)", script)) == (
        {"gallery"} if name == "grid.js" else set()
    )
    for word in ("XMLHttpRequest", "insertAdjacentHTML", "eval(", "http:", "https:"):
        assert word not in script
    assert script.count("innerHTML") == script.count("innerHTML = SKELETON")


def test_streamlit_is_imported_by_the_dashboard_only() -> None:
    for folder in OTHERS:
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
                assert not any(n.split(".")[0] == "streamlit" for n in names), file


def test_the_dashboard_loads_no_training_code() -> None:
    script = (
        "import sys\n"
        "from fedlens.dashboard import serve\n"
        "from fedlens.dashboard.access import session\n"
        "from fedlens.dashboard.widgets import grid, labeller\n"
        "from fedlens.dashboard.labelling import answers\n"
        "from fedlens.dashboard.samples import images\n"
        "from fedlens.dashboard.summary import charts\n"
        "training = {'torch', 'flwr', 'fedlens.client', 'fedlens.models'}\n"
        "assert 'streamlit' in sys.modules and not training & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
