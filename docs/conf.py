"""Sphinx configuration of the manual; built with warnings as errors by `make docs`."""

from __future__ import annotations

from importlib.metadata import version as installed_version

project = "Armillary"
copyright = "the Armillary contributors"
version = release = installed_version("armillary")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
default_role = "code"

html_theme = "furo"
html_title = f"Armillary {version}"


def _write_schema() -> None:
    """Put the JSON Schema of study files where reference/study.md includes it."""
    import json
    from pathlib import Path

    from armillary.workload.plan.request import study_schema

    target = Path(__file__).parent / "_build" / "study.schema.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(study_schema(), indent=2) + "\n")


_write_schema()
