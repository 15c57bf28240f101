"""Pages in HTML that need nothing else: tables, and pictures inside the file."""

import base64
import html
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
body { margin: 0; color: #1a1a1a; background: #fff; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.2rem; margin: 2rem 0 0.5rem; }
p { max-width: 46rem; margin: 0.5rem 0; }
.note { color: #555; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 0.5rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.8rem 0.3rem 0; text-align: right; vertical-align: top; }
thead th { border-bottom: 2px solid #888; font-weight: 600; vertical-align: bottom; }
tbody th, tbody td { border-bottom: 1px solid #ddd; }
tbody th { font-weight: 600; }
th.text, td.text { text-align: left; }
td.text { min-width: 14rem; }
.pictures { display: grid; gap: 1.5rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 23rem), 1fr)); }
figure { margin: 0; }
img { display: block; width: 100%; height: auto; }
figcaption { color: #555; font-size: 0.9rem; }
"""


def page(title: str, parts: Iterable[str]) -> str:
    """Returns a page with a title.

    Args:
        title: Title, plain text.
        parts: HTML of its parts.
    """
    title = html.escape(title)
    head = (
        '<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>"
    )
    body = "\n".join([f"<h1>{title}</h1>", *parts])
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n'
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def paragraph(text: str, note: bool = False) -> str:
    """Returns a paragraph of plain text."""
    attribute = ' class="note"' if note else ""
    return f"<p{attribute}>{html.escape(text)}</p>"


def heading(text: str) -> str:
    """Returns the heading of a section."""
    return f"<h2>{html.escape(text)}</h2>"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Returns a table; numbers have four digits, and NaN and `None` are a dash.

    Args:
        columns: Headings.
        rows: Cells, the first of a row is its heading. Words are plain text.
    """
    rows = [list(row) for row in rows]
    texts = [isinstance(cell, str) for cell in rows[0]] if rows else [True] * len(columns)
    head = "".join(_cell("th", *pair) for pair in zip(columns, texts, strict=True))
    body = "\n".join(f"<tr>{_row(row)}</tr>" for row in rows)
    return (
        f'<div class="wide">\n<table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>\n</div>"
    )


def pictures(found: Iterable[tuple["Figure", str]]) -> str:
    """Returns pictures side by side, as many as there is room for.

    Args:
        found: Pairs of a figure and its caption, plain text.
    """
    parts = [_picture(figure, html.escape(caption)) for figure, caption in found]
    return '<div class="pictures">\n' + "\n".join(parts) + "\n</div>"


def _picture(figure, caption):
    with io.BytesIO() as buffer:
        figure.savefig(buffer, format="png", dpi=160)
        data = base64.b64encode(buffer.getvalue()).decode("ascii")
    image = f'<img src="data:image/png;base64,{data}" alt="{caption}">'
    return f"<figure>\n{image}\n<figcaption>{caption}</figcaption>\n</figure>"


def _row(cells):
    first, *others = cells
    return _cell("th", first) + "".join(_cell("td", value) for value in others)


def _cell(tag, value, is_text=True):
    if isinstance(value, str):
        attribute = ' class="text"' if is_text else ""
        return f"<{tag}{attribute}>{html.escape(value)}</{tag}>"
    if value is None or value != value:
        return f"<{tag}>–</{tag}>"
    return f"<{tag}>{value:d}</{tag}>" if isinstance(value, int) else f"<{tag}>{value:.4g}</{tag}>"
