"""The site builds strictly, and each of its checks finds the fault that it is for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
import checks  # noqa: E402
import make_laws  # noqa: E402

LAWS = """[[chapter]]
title = "1. Sums"
about = "They add up."
not_held = ["That it is fast."]

[[chapter.law]]
name = "1: it adds up"
means = "All of it."
"""
HELD = """@pytest.mark.law("1: it adds up")
def test_it_holds():
    pass
"""


@pytest.fixture
def site(tmp_path):
    """A checkout in small: a README, one page, one law, one picture and what makes it."""
    docs = tmp_path / "docs"
    (docs / "images").mkdir(parents=True)
    (docs / "reference").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "Makefile").write_text("demo: setup\n")
    (tmp_path / "README.md").write_text("![a](docs/images/a.png)\n")
    (docs / "laws.toml").write_text(LAWS)
    (docs / "proof.md").write_text("# The proof\n")
    (docs / "reference" / "settings.md").write_text("| `tasks.NAME.rounds` | `1` | rounds |\n")
    (docs / "images" / "a.png").touch()
    (tmp_path / "draw.py").write_text('"""Draws."""\naxes.set_title("a title")\n')
    (tmp_path / "tests" / "test_a.py").write_text(HELD)
    (docs / "laws.md").write_text(make_laws.render(tmp_path))
    entry = '[[picture]]\nfiles = "a.png"\nmade_by = "python draw.py"\ncode = ["draw.py"]\n'
    (docs / "images" / "pictures.toml").write_text(entry)
    assert checks.mark_seen(tmp_path, "a.png") == ["a.png"]
    return tmp_path


def faults(root):
    found = (
        checks.command_faults,
        checks.link_faults,
        checks.table_faults,
        checks.setting_faults,
        checks.picture_faults,
        make_laws.law_faults,
    )
    return [fault for check in found for fault in check(root)]


def test_a_sound_site_has_no_fault(site):
    assert faults(site) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```bash\nfedlens simulate --no-such-flag\n```", "is not understood"),
        ("```bash\nfedlens budget --sampling-rate 1 \\\n  --nope\n```", "is not understood"),
        ("```bash\nmake coffee\n```", "make coffee is no target"),
        ("[there](nowhere.md)", "nowhere.md is not there"),
        ("| 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 |", "more than seven columns"),
        ("set `tasks.critic.laps`", "no setting tasks.critic.laps"),
    ],
)
def test_a_fault_on_a_page_is_found(site, text, said):
    (site / "docs" / "page.md").write_text(text + "\n")
    assert [said in fault for fault in faults(site)] == [True]


def test_what_is_right_on_a_page_is_no_fault(site):
    text = (
        "`tasks.critic.rounds`\n\n```bash\nmake demo\nfedlens --help > a\n```\n\n| a \\| b | c |\n"
    )
    (site / "docs" / "page.md").write_text(text)
    assert faults(site) == []


def test_a_law_that_no_test_is_marked_with_is_found(site):
    (site / "tests" / "test_a.py").write_text(HELD.replace("it adds up", "it adds"))
    assert faults(site) == [
        "docs/laws.toml: no test is marked with '1: it adds up'",
        "tests/test_a.py: test_it_holds is marked with '1: it adds', which is no law",
        "docs/laws.md is not what the markers say; run docs/make_laws.py",
    ]


def test_a_law_that_stands_twice_is_found(site):
    laws = site / "docs" / "laws.toml"
    laws.write_text(LAWS + LAWS[LAWS.index("[[chapter.law]]") :])
    assert "docs/laws.toml: '1: it adds up' stands twice" in faults(site)


def test_the_page_of_laws_names_tests_classes_and_files(site):
    (site / "tests" / "test_b.py").write_text(
        "pytestmark = [pytest.mark.slow, pytest.mark.law('1: it adds up')]\n"
        "class TestIt:\n"
        "    @pytest.mark.law('1: it adds up')\n"
        "    def test_more(self): pass\n"
    )
    page = make_laws.render(site)
    assert "3 tests" in page and "**Not held yet:** that it is fast." in page
    for name in ("test_a.py::test_it_holds`", "test_b.py`", "test_b.py::TestIt::test_more`"):
        assert f"`tests/{name}" in page


def test_a_picture_is_stale_once_its_code_draws_other_words(site):
    (site / "draw.py").write_text('"""Draws more."""\nnote("b")\naxes.set_title("a title")\n')
    assert faults(site) == []
    (site / "draw.py").write_text('axes.set_title("another title")\n')
    assert "a.png is stale" in faults(site)[0]
    checks.mark_seen(site, "a.png")
    assert faults(site) == []


def test_a_picture_without_entry_page_or_code_is_found(site):
    (site / "docs" / "images" / "b.png").touch()
    (site / "draw.py").unlink()
    assert sorted(fault[:30] for fault in faults(site)) == [
        "a.png: its code draw.py is gon",
        "docs/images/b.png has no entry",
        "docs/images/b.png is on no pag",
    ]


def test_public_names_without_docstring_are_found(monkeypatch):
    module = ModuleType("silent")
    module.__all__ = ["Told", "untold"]
    exec(
        "class Told:\n    '''Told.'''\n    def quiet(self): pass\n    def _own(self): pass\n"
        "def untold(): pass\n",
        vars(module),
    )
    monkeypatch.setitem(sys.modules, "silent", module)
    assert list(checks.api_faults("silent")) == [
        "silent.Told.quiet has no docstring",
        "silent.untold has no docstring",
    ]


def build(source, out):
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run([*command, source, out], capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.law("documents: the pages say what the code does")
def test_the_site_builds_strictly(tmp_path):
    code, said = build(DOCS, tmp_path)
    assert code == 0, said
    assert "fedlens" in (tmp_path / "reference" / "api.html").read_text()


BROKEN = ("[x](index.md#nowhere)", "[x](nowhere.md)", "![x](no.png)")


def test_broken_links_fail_the_build(tmp_path):
    shutil.copy(DOCS / "conf.py", tmp_path / "conf.py")
    (tmp_path / "checks.py").write_text("def all_faults(root):\n    return []\n")
    (tmp_path / "index.md").write_text("# Title\n\n" + "\n\n".join(BROKEN) + "\n")
    code, said = build(tmp_path, tmp_path / "out")
    assert code == 1
    for line in (3, 5, 7):
        assert f"index.md:{line}" in said
