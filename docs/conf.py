"""Sphinx settings of the site; `make docs` builds it strictly."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging as sphinx_logging

import fedlens

sys.path.insert(0, str(Path(__file__).parent))
import checks

logging.getLogger("alembic").setLevel(logging.WARNING)  # or its plugins tell of themselves

project = "fedlens"
author = "the fedlens authors"
copyright = "the fedlens authors, Apache-2.0"  # noqa: A001 (the name that Sphinx reads)
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["build", "examples"]
html_theme = "furo"
html_title = "fedlens"
html_show_sourcelink = False

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
nitpicky = True
# Only the public API has pages, not the floors; names of other packages lead nowhere offline.
FLOORS = sorted(one.name for one in Path(fedlens.__file__).parent.iterdir() if one.is_symlink())
nitpick_ignore_regex = [
    ("py:.*", r"(?!fedlens\.).*"),
    ("py:.*", rf"fedlens\.({'|'.join(FLOORS)})\..*"),
]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}


def _check(app: Sphinx) -> None:
    """Every fault of the documents is a warning, and every warning ends a strict build."""
    for fault in checks.all_faults(Path(app.srcdir).parent):
        sphinx_logging.getLogger(__name__).warning(fault)


def setup(app: Sphinx) -> None:
    """Hook the checks into the build."""
    app.connect("builder-inited", _check)
