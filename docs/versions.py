"""Builds the manual of every version into one folder, with a choice of versions on each page.

python docs/versions.py docs/_build/site

A version is a tag such as v0.1.0; what is checked out is the version "latest". Each is built from its own sources, and
then told of all others: a manual of last year offers this year's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

LATEST = "latest"
_TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


def tags(repository: Path) -> list[str]:
    """Return the tags that are versions, the newest first."""
    found = subprocess.run(
        ["git", "tag"], cwd=repository, check=True, capture_output=True, text=True
    ).stdout.split()
    return sorted(
        filter(_TAG.fullmatch, found), key=lambda tag: tuple(map(int, tag[1:].split("."))), reverse=True
    )


def build(sources: Path, target: Path, name: str) -> None:
    """Build the manual of a checkout."""
    environment = os.environ | {"PYTHONPATH": str(sources / "src"), "ARMILLARY_MANUAL": name}
    subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(sources / "docs"), str(target)],
        check=True,
        env=environment,
    )


def tell(site: Path, names: Iterable[str]) -> None:
    """Write into every manual which ones there are, with their pages, and a first page that leads to the newest."""
    known = [
        {
            "name": name,
            "pages": sorted(
                str(page.relative_to(site / name).with_suffix("")) for page in (site / name).rglob("*.html")
            ),
        }
        for name in names
    ]
    for each in known:
        text = f"window.VERSIONS = {json.dumps(known)};\n"
        (site / each["name"] / "_static" / "versions.js").write_text(text)
    first = next((each["name"] for each in known if each["name"] != LATEST), LATEST)
    (site / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>Manual</title>'
        f'<meta http-equiv="refresh" content="0; url={first}/index.html"><a href="{first}/index.html">Manual</a>\n'
    )


def main(arguments: list[str] | None = None) -> None:
    """Build all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path, help="folder to write")
    parser.add_argument("--repository", type=Path, default=Path(__file__).parents[1])
    given = parser.parse_args(arguments)
    site, repository = given.site.resolve(), given.repository.resolve()
    build(repository, site / LATEST, LATEST)
    names = [LATEST]
    for tag in tags(repository):
        with tempfile.TemporaryDirectory() as folder:
            sources = Path(folder, "sources")
            subprocess.run(
                ["git", "worktree", "add", "--detach", str(sources), tag],
                cwd=repository,
                check=True,
                capture_output=True,
            )
            try:
                build(sources, site / tag[1:], tag[1:])
            finally:
                subprocess.run(
                    ["git", "worktree", "remove", "--force", str(sources)], cwd=repository, check=True
                )
        names.append(tag[1:])
    tell(site, names)


if __name__ == "__main__":
    main()
