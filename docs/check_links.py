"""Checks that every relative link in the Markdown files leads to a file, each anchor to a heading.

Standard library only. Looks at `*.md` in the repository root and everywhere below `docs/`,
`benchmarks/` and `.github/`; links of the form `[text](path#anchor)`, images, and reference
definitions `[name]: path`. Addresses of the web are visited with `--external` only. Code blocks
and code spans are skipped.

    python docs/check_links.py [--root DIR] [--external]
"""

import argparse
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("docs", "benchmarks", ".github")

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
# One level of parentheses inside the target, `<target with spaces>`, an optional "title".
_INLINE = re.compile(
    r"""\]\(\s*(?:<([^<>]*)>|((?:[^\s()]|\([^\s()]*\))*))(?:\s+(?:"[^"]*"|'[^']*'|\([^()]*\)))?\s*\)"""
)
_REFERENCE = re.compile(r"^ {0,3}\[(?!\^)[^\]]+\]:\s*(?:<([^<>]*)>|(\S+))")
_SCHEME = re.compile(r"^(?:[a-zA-Z][a-zA-Z0-9+.-]*:|//)")
_WEB = re.compile(r"^https?:")
_HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)(?:\s+#+)?\s*$")
_HTML_ANCHOR = re.compile(r"""<[^>]*\b(?:id|name)\s*=\s*["']([^"']+)["']""")


def markdown_files(root: Path) -> list[Path]:
    """The Markdown files that are checked, sorted."""
    files = set(root.glob("*.md"))
    for folder in FOLDERS:
        files.update((root / folder).rglob("*.md"))
    return sorted(files)


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields (line number, line) outside fenced code blocks."""
    fence = None
    for number, line in enumerate(text.splitlines(), start=1):
        match = _FENCE.match(line)
        if fence is None and match:
            fence = match.group(1)
        elif fence is None:
            yield number, line
        elif match and match.group(1).startswith(fence) and not line.strip().strip(fence[0]):
            fence = None


def links(text: str) -> Iterator[tuple[int, str]]:
    """Yields (line number, target) of every link and image."""
    for number, line in prose_lines(text):
        line = _CODE_SPAN.sub("`code`", line)
        for match in _INLINE.finditer(line):
            yield number, match.group(1) if match.group(1) is not None else match.group(2)
        match = _REFERENCE.match(line)
        if match:
            yield number, match.group(1) if match.group(1) is not None else match.group(2)


def anchors(text: str) -> set[str]:
    """The anchors that GitHub makes of the headings, and those written as HTML."""
    found: set[str] = set()
    counts: dict[str, int] = {}
    for _, line in prose_lines(text):
        found.update(_HTML_ANCHOR.findall(line))
        match = _HEADING.match(line)
        if not match:
            continue
        title = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1)).strip().lower()
        slug = "".join(c for c in title if c.isalnum() or c in " -_").replace(" ", "-")
        seen = counts.get(slug, 0)
        counts[slug] = seen + 1
        found.add(f"{slug}-{seen}" if seen else slug)
    return found


def problem_of(target: str, page: Path, root: Path) -> str | None:
    """Says what is wrong with a link target on a page, or None."""
    if _SCHEME.match(target):
        return None
    path_text, _, anchor = target.partition("#")
    path_text = urllib.parse.unquote(path_text.partition("?")[0])
    if not path_text and not anchor:
        return "empty link"
    if path_text.startswith("/"):
        return "absolute path: write it relative to the page"
    goal = (page.parent / path_text).resolve() if path_text else page
    if not goal.is_relative_to(root):
        return "leads out of the repository"
    if not goal.exists():
        return "no such file"
    if anchor and goal.suffix.lower() == ".md":
        known = anchors(goal.read_text(encoding="utf-8"))
        if urllib.parse.unquote(anchor).lower() not in {name.lower() for name in known}:
            return f"no heading for #{anchor}"
    return None


def problem_of_address(address: str, timeout: float = 20.0) -> str | None:
    """Visits an address of the web and says what is wrong, or None.

    That a server refuses programs (403) or asks them to wait (429) is no problem of the address.
    """
    request = urllib.request.Request(address, headers={"User-Agent": "Mozilla/5.0 check_links"})
    try:
        urllib.request.urlopen(request, timeout=timeout).close()
    except urllib.error.HTTPError as error:
        return None if error.code in (403, 429) else f"the server answers {error.code}"
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def main(argv: list[str] | None = None) -> int:
    """Prints every broken link and returns 1, or a summary and 0."""
    parser = argparse.ArgumentParser(description="Check the links of the Markdown files.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--external", action="store_true", help="visit addresses of the web too")
    options = parser.parse_args(argv)
    root = options.root.resolve()
    pages = markdown_files(root)
    count, broken = 0, 0
    visited: dict[str, str | None] = {}
    for page in pages:
        for number, target in links(page.read_text(encoding="utf-8")):
            if _WEB.match(target) and options.external:
                if target not in visited:
                    visited[target] = problem_of_address(target)
                problem = visited[target]
            elif _SCHEME.match(target):
                continue
            else:
                count += 1
                problem = problem_of(target, page, root)
            if problem:
                broken += 1
                where = f"{page.relative_to(root)}:{number}"
                print(f"{where}: ({target}): {problem}", file=sys.stderr)
    external = f"{len(visited)} addresses of the web, " if options.external else ""
    print(f"check_links: {len(pages)} pages, {count} relative links, {external}{broken} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
