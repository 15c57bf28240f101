"""What MkDocs does not do by itself: formulas, notebooks, pages of the repository's root, the nav.

- `$...$` and `$$...$$` become MathML, which browsers draw without a script. LaTeX that cannot be
  converted is a warning, and so an error of `make docs`.
- Each notebook of `colabs/` becomes a page, with the outputs that it has. That its code is not
  what ran is a warning.
- Items of `docs/gallery.md` become cards with a figure of the notebook. That one is missing is a
  warning.
- `CHANGELOG.md` and `CONTRIBUTING.md` become pages.
- Entries of the nav that end in `/*` stand for the pages in that folder.
"""

import ast
import html
import logging
import re
import sys
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "colabs"))

import run as colabs  # noqa: E402 (colabs/run.py)

LOG = logging.getLogger("mkdocs.hooks.site")

#: Page -> file of the root.
ROOT_PAGES = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}

#: Notebook -> the addresses of its figures, in their order; filled by `on_files`.
FIGURES: dict[str, list[str]] = {}

_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\s*(?:\\\((.*?)\\\)|\\\[(.*?)\\\])\s*</\1>', re.DOTALL
)
#: Script capitals that Unicode had before the others.
_SCRIPT = dict(zip("BEFHILMR", "ℬℰℱℋℐℒℳℛ", strict=True))
_COLAB = "https://colab.research.google.com/github/"
#: `- [Title](../colabs/stem.ipynb): Text. <!-- figure 2: alternative text -->`, over several lines.
_CARD = re.compile(
    r"^- \[([^\]]+)\]\(\.\./colabs/(\w+)\.ipynb\): ((?:(?!^- ).)*?)\s*"
    r"<!-- figure (\d+): (.*?) -->\n?",
    re.DOTALL | re.MULTILINE,
)
_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)


def on_config(config):
    """Fills the entries of the nav that end in `/*`."""
    pages = {path.relative_to(config.docs_dir).as_posix() for path in _pages(config.docs_dir)}
    pages |= {f"colabs/{path.stem}.md" for path in colabs.notebooks()}
    config.nav = _expand(config.nav, sorted(pages, key=lambda name: (not _is_index(name), name)))
    return config


def _pages(folder):
    return Path(folder).rglob("*.md")


def _is_index(name):
    return name.endswith("/index.md")


def _expand(entry, pages):
    if isinstance(entry, dict):
        return {title: _expand(value, pages) for title, value in entry.items()}
    if isinstance(entry, list):
        return [part for item in entry for part in _expand_item(item, pages)]
    return entry


def _expand_item(item, pages):
    if isinstance(item, str) and item.endswith("/*"):
        return [name for name in pages if re.fullmatch(re.escape(item[:-1]) + "[^/]*", name)]
    return [_expand(item, pages)]


def on_files(files, config):
    """Adds the pages that are made here."""
    for name, source in ROOT_PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_from_the_root(text)))
    for notebook in colabs.notebooks():
        repository = config.extra["repository"]
        made = _notebook_files(notebook, repository)
        FIGURES[notebook.stem] = [f"colabs/{name}" for name in made if name.endswith(".png")]
        for name, content in made.items():
            files.append(File.generated(config, f"colabs/{name}", content=content))
    return files


def _from_the_root(text):
    """The Markdown of a file of the root as that of a page: its links start in `docs/`."""
    parts = _CODE.split(text)
    parts[::2] = [re.sub(r"\]\((?:docs/|(?=colabs/\w+\.ipynb))", "](", part) for part in parts[::2]]
    return "".join(parts)


def _notebook_files(path, repository):
    """The page of a notebook and its figures, by their names in the site's `colabs/`."""
    from nbconvert import MarkdownExporter

    if colabs.is_stale(colabs.read(path)):
        LOG.warning("colabs/%s has other code than what ran: `make colabs`", path.name)
    exporter = MarkdownExporter()
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    body, resources = exporter.from_filename(str(path))
    found = {}
    for name, content in resources.get("outputs", {}).items():
        found[f"{path.stem}/{name}"] = content
        body = body.replace(f"]({name})", f"]({path.stem}/{name})")
    body = re.sub(r"\]\(\.\./docs/", "](../", body)
    body = re.sub(r"\]\((\d\d_\w+)\.ipynb", r"](\1.md", body)
    return {f"{path.stem}.md": _with_note(body, path, repository), **found}


def _with_note(body, path, repository):
    """Says below the title where the page comes from."""
    note = f"*This page is the notebook `colabs/{path.name}` with the outputs of a whole run.*"
    if repository:
        place = repository.removeprefix("https://github.com/")
        link = f"{_COLAB}{place}/blob/main/colabs/{path.name}"
        note += f"\n\n[![Open in Colab](../assets/colab-badge.svg)]({link})"
    title, _, rest = body.lstrip().partition("\n")
    return f"{title}\n\n{note}\n{rest}"


def on_page_markdown(markdown, page=None, **_):
    """Links that lead out of `docs/` in the repository lead to the pages that are made here."""
    if page is not None and page.file.src_uri == "gallery.md":
        markdown = gallery(markdown, FIGURES)
    parts = _CODE.split(markdown)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"\]\(\.\./((?:\.\./)*colabs/\w+)\.ipynb", r"](\1.md", parts[i])
        for name, source in ROOT_PAGES.items():
            parts[i] = re.sub(
                rf"\]\(\.\./((?:\.\./)*){re.escape(source)}", rf"](\1{name}", parts[i]
            )
    return "".join(parts)


def gallery(markdown, figures):
    """Makes a card of each item that names a figure, and warns of notebooks without one.

    Args:
        markdown: Text of the page.
        figures: Dict of a notebook's name to the addresses of its figures.
    """
    shown = []

    def card(match):
        title, stem, text, number, alt = (" ".join(part.split()) for part in match.groups())
        shown.append(stem)
        known = figures.get(stem, [])
        if int(number) not in range(1, len(known) + 1):
            LOG.warning("gallery.md: %s has no figure %s, it has %s", stem, number, len(known))
            return match.group()
        link, picture = f"colabs/{stem}.md", known[int(number) - 1]
        text = f"**[{title}]({link})**: {text}"
        return f"<div markdown>\n\n[![{alt}]({picture})]({link})\n\n{text}\n\n</div>\n"

    head, *rest = re.split(r"(?m)^(?=- \[)", markdown, maxsplit=1)
    cards = "".join(_CARD.sub(card, part) for part in rest)
    for stem in sorted(figures.keys() - shown):
        LOG.warning("gallery.md: the notebook %s is not in it", stem)
    return f'{head}<div class="gallery" markdown>\n{cards}</div>\n'


def on_page_content(content, page, **_):
    """Formulas as MathML; and are all public names there?"""
    if page.file.src_uri.startswith("api/"):
        _check_names(content, page)

    def replace(match):
        inline, block = match.group(2), match.group(3)
        latex = html.unescape(inline if block is None else block).strip()
        mathml = _as_browsers_want_it(
            convert(latex, display="inline" if block is None else "block")
        )
        if "\\" in re.sub(r"&#x0*5C;", r"\\", mathml, flags=re.IGNORECASE):
            LOG.warning("%s: LaTeX that is not understood: %s", page.file.src_uri, latex)
        return mathml if block is None else f'<div class="formula">{mathml}</div>'

    return _FORMULA.sub(replace, content)


def _as_browsers_want_it(mathml):
    """Script letters by their own code points, relations and functions with their spaces."""

    def script(match):
        letter = match.group(1)
        return f"<mi>{_SCRIPT.get(letter) or chr(0x1D49C + ord(letter) - ord('A'))}</mi>"

    mathml = re.sub(r'<mi mathvariant="script">([A-Z])</mi>', script, mathml)
    mathml = mathml.replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")
    return mathml.replace("<mi>log</mi>", '<mi>log</mi><mspace width="0.167em"/>')


def _check_names(content, page):
    """Warns of names of `__all__` that are not on the page of their module."""
    for module in re.findall(r"^::: (\S+)", page.markdown, re.MULTILINE):
        for name in _public_names(ROOT.joinpath(*module.split("."))):
            if f'id="{module}.{name}"' not in content:
                LOG.warning("%s: %s.%s has no entry", page.file.src_uri, module, name)


def _public_names(path):
    """The entries of `__all__` of a package or module, without importing it."""
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.exists():
        return []  # the directive names a class
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    return []
