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
    """Put the JSON Schemas of study and sweep files where the reference includes them."""
    import json
    from pathlib import Path

    from armillary.explore.sweep.schema import sweep_schema
    from armillary.workload.plan.request import study_schema

    folder = Path(__file__).parent / "_build"
    folder.mkdir(exist_ok=True)
    for name, schema in (("study", study_schema()), ("sweep", sweep_schema())):
        (folder / f"{name}.schema.json").write_text(json.dumps(schema, indent=2) + "\n")


_write_schema()
