"""How raygo's objects look in notebooks.  Plain HTML; nothing to install."""
from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

__all__ = ["table_html"]


def table_html(title: str, rows: Mapping[str, Any]) -> str:
    """A small table of names and values.

    Examples
    --------
    >>> table_html("Answer", {"value": 42})
    '<table><caption>Answer</caption><tr><th>value</th><td>42</td></tr></table>'
    """
    body = "".join(f"<tr><th>{escape(str(key))}</th><td>{escape(str(value))}</td></tr>" for key, value in rows.items())
    return f"<table><caption>{escape(title)}</caption>{body}</table>"
