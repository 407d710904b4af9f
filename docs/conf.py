"""Sphinx configuration of the manual; built with warnings as errors by `make docs`."""

from __future__ import annotations

import os
import re
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Armillary"
copyright = "the Armillary contributors"
# Of several manuals (docs/versions.py) each has its name.
version = release = os.environ.get("ARMILLARY_MANUAL") or installed_version("armillary")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
default_role = "code"

html_theme = "furo"
html_title = f"Armillary {version}"
html_static_path = ["_static"]
html_css_files = ["manual.css"]
html_js_files = ["versions.js", "switcher.js"]
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
# Sphinx opens it from where it was started.
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")

_FILE = re.compile(r"^<!-- file: (?P<name>[^ >]+) -->\n```(?P<language>\w*)$", re.M)


def _name_files(app: Sphinx, page: str, source: list[str]) -> None:
    """Show above a block the name of the file that it is: the tests write it there."""
    source[0] = _FILE.sub(r"```{code-block} \g<language>\n:caption: \g<name>\n", source[0])


def setup(app: Sphinx) -> None:
    """Let pages say the names of files."""
    app.connect("source-read", _name_files)


def _write_schema() -> None:
    """Put the JSON Schemas of study and sweep files where the reference includes them."""
    import json

    from armillary.explore.sweep.schema import sweep_schema
    from armillary.workload.plan.request import study_schema

    folder = Path(__file__).parent / "_build"
    folder.mkdir(exist_ok=True)
    for name, schema in (("study", study_schema()), ("sweep", sweep_schema())):
        (folder / f"{name}.schema.json").write_text(json.dumps(schema, indent=2) + "\n")


_write_schema()
