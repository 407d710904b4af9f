"""HTML pages in one file, which run only their own scripts and make no network requests."""

from __future__ import annotations

import base64
import hashlib
import html
import os
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.base.text import COMMANDS, xml_document

DATA = "page-data"
"""The id of the element that holds the data of a page."""


def check_page(path: str | os.PathLike[str]) -> None:
    """Refuse early a file that is no page.

    Raises:
        InputError: the suffix is not .html.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".html", ".htm"):
        raise InputError(f"{path}: suffix {suffix!r}, expected '.html'")


def html_text(text: str) -> str:
    """Return text as the content, or between quotes the value of an attribute, of an HTML element."""
    return html.escape(xml_document(text))


def html_page(
    title: str,
    style: str,
    body: Iterable[str],
    *,
    data: Any = None,
    scripts: Sequence[str] = (),
) -> list[str]:
    """Return the pieces of a page.

    A browser refuses every script in it that is not among `scripts`, handlers in attributes too, and every request:
    should a text of `body` ever be markup, it can do nothing.

    Args:
        title: A text.
        style: CSS.
        body: HTML, in which each text went through `html_text`.
        data: What the scripts find as JSON in the element `DATA`; None: nothing.
        scripts: JavaScript, in order; the last ones run when the body is there.
    """
    # "</script" would end a script, whatever stands around it.
    scripts = [script.replace("</script", "<\\/script") for script in scripts]
    allowed = " ".join(map(_digest, scripts)) if scripts else "'none'"
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    pieces = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html_text(title)}</title>\n<style>\n{style}</style></head>\n<body>\n",
        *body,
    ]
    if data is not None:
        pieces.append(f'<script type="application/json" id="{DATA}">{script_data(data)}</script>\n')
    pieces += [f"<script>{script}</script>\n" for script in scripts]
    return [*pieces, "</body></html>\n"]


def drawn_page(kind: str, title: str, data: Any, *, charts: bool = True) -> list[str]:
    """Return the pieces of a page that scripts draw from its data.

    Args:
        kind: The script and the style of `armillary/web`, which `make studio` builds from `web/src`.
        title: A text.
        data: See `html_page`.
        charts: Whether they use the chart library.
    """
    parts = files("armillary") / "web"

    def part(name: str) -> str:
        return (parts / name).read_text(encoding="utf-8")

    body = [
        '<main id="page"></main>\n<noscript>This page is drawn by its own scripts, which are off.</noscript>\n'
    ]
    scripts = [part(f"{name}.js") for name in (["charts"] if charts else []) + [kind]]
    return html_page(title, part(f"{kind}.css"), body, data=data, scripts=scripts)


def script_data(value: Any) -> str:
    """Return a value as JSON that may stand inside a script element; what turns text around is spelled out."""
    # Late: `armillary --help` writes no JSON.
    import json

    plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # With two backslashes: to scripts, too, it is an escape to read, or a page would show what follows backwards.
    spelled = COMMANDS.sub(lambda found: f"\\\\u{ord(found[0]):04x}", plain)
    # "</script" would end the script, and "<!--" change how it is parsed.
    return spelled.replace("<", "\\u003c")


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
