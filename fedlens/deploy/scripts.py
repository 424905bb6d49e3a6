"""Start scripts and systemd units, from templates beside this file."""

from __future__ import annotations

import sys
from pathlib import Path
from string import Template

from fedlens.deploy.layout import read_folder
from fedlens.foundation.files import write_durably

TEMPLATES = Path(__file__).with_name("templates")


def render_template(template: str, **values: object) -> bytes:
    """A template with its names filled in; one that is missing raises ``KeyError``."""
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    return Template(text).substitute(values).encode()


def write_scripts(folder: Path) -> None:
    """Write ``start.sh`` and the systemd unit of a folder."""
    settings = read_folder(folder, floor=False)
    start = folder / "start.sh"
    write_durably(start, render_template("start.sh"), private=True)
    start.chmod(0o700)
    unit = render_template(
        "service.unit", role=settings.role, name=folder.name, python=sys.executable
    )
    write_durably(folder / f"fedlens-{folder.name}.service", unit, private=True)
