"""A contract of the import linter: what a folder may import, everything else being refused.

The linter's own contracts name what is forbidden, so a new folder or a new dependency is allowed
until somebody thinks of it. Here it is refused until somebody allows it.
"""

from __future__ import annotations

import sys
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class Allowlist(Contract):
    """Modules of ``source`` import themselves, the standard library, and what is ``allowed``.

    Settings:
        source: a package.
        allowed: modules and packages, with all that is in them; external ones by their top name.
        except_for: modules inside ``source`` that have a contract of their own.
    """

    source = fields.StringField()
    allowed = fields.ListField(subfield=fields.StringField())
    except_for = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Every direct import of every module in ``source``."""
        source = str(self.source)
        allowed: list[Any] = list(self.allowed)  # type: ignore[call-overload]
        apart: list[Any] = list(self.except_for or [])  # type: ignore[call-overload]
        found = {
            (module, imported)
            for module in sorted({source, *graph.find_descendants(source)})
            if not any(_within(module, name) for name in apart)
            for imported in graph.find_modules_directly_imported_by(module)
            if not any(_within(imported, root) for root in (source, *allowed))
            and imported.split(".")[0] not in sys.stdlib_module_names
        }
        return ContractCheck(kept=not found, metadata={"found": sorted(found)})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """One line an import."""
        for module, imported in check.metadata["found"]:
            output.print_error(f"{module} imports {imported}, which {self.source} may not")


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
