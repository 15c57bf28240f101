"""The documentation site: public modules have pages, formulas are converted, links are good.

`make docs` builds it with warnings as errors. Its hook also checks that each public name has an
entry on the page of its module (`docs/site_hooks.py`).
"""

import importlib
import importlib.util
import re
import sys
import types
from pathlib import Path

import pytest

import tfp_fnspace as fns

ROOT = Path(__file__).resolve().parents[1]
API = ROOT / "docs" / "api"
DIRECTIVE = re.compile(r"^::: (\S+)", re.MULTILINE)


def public_modules():
    """Returns modules that `import tfp_fnspace` offers, and other packages with an `__all__`."""
    found = {m.__name__ for m in vars(fns).values() if isinstance(m, types.ModuleType)}
    found = {name for name in found if name.startswith("tfp_fnspace.")}
    offered = {getattr(fns, name) for name in fns.__all__}
    chosen = {m.__name__ for m in offered if isinstance(m, types.ModuleType)}
    return chosen | {name for name in found if hasattr(sys.modules[name], "__all__")}


def documented():
    """Returns module or object -> its page."""
    return {name: page for page in API.glob("*.md") for name in DIRECTIVE.findall(page.read_text())}


def test_every_public_module_has_a_page():
    assert len(public_modules()) >= 12
    assert public_modules() - documented().keys() == set()


def test_the_other_public_names_are_on_the_index():
    shown = DIRECTIVE.findall((API / "index.md").read_text(encoding="utf-8"))
    *named, types_page = shown
    assert named == ["tfp_fnspace.model.FunctionSpaceModel", "tfp_fnspace.load_model"]
    assert types_page == "tfp_fnspace.typing"
    others = {n for n in fns.__all__ if not isinstance(getattr(fns, n), types.ModuleType)}
    assert others - {name.split(".")[-1] for name in named} <= vars(fns.typing).keys()


def test_pages_name_what_exists():
    for name in documented():
        module, _, attribute = name.rpartition(".")
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), attribute), name


def test_badges_are_true():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    versions = re.search(r"badge/python-(\S+)-\w+\)", readme)[1].split("_%7C_")
    assert versions == re.findall(r"Python :: (3\.\d+)\"", setup)
    least = re.search(r"badge/TensorFlow-%E2%89%A5_(\S+)-\w+\)", readme)[1]
    assert f'"tensorflow>={least},' in setup
    assert "badge/Keras-3-" in readme and '"keras>=3' in setup
    assert "badge/licence-Apache--2.0" in readme and 'license="Apache-2.0"' in setup


# The hooks, where the documentation's packages are installed -----------------------------------


@pytest.fixture(scope="module")
def hooks():
    for needed in ("latex2mathml", "mkdocs", "nbformat"):
        pytest.importorskip(needed)
    path = ROOT / "docs" / "site_hooks.py"
    spec = importlib.util.spec_from_file_location("site_hooks", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Page:
    """The attributes of a page that `on_page_content` uses."""

    def __init__(self, src_uri, markdown=""):
        self.file = types.SimpleNamespace(src_uri=src_uri)
        self.markdown = markdown


def test_formulas_become_mathml(hooks):
    inline = r'<p><span class="arithmatex">\(v \sim \mathcal N(0, 1)\)</span></p>'
    found = hooks.on_page_content(inline, page=Page("a.md"))
    assert found.startswith("<p><math") and "<mi>\N{MATHEMATICAL SCRIPT CAPITAL N}</mi>" in found
    assert "arithmatex" not in found
    block = '<div class="arithmatex">\\[\n\\frac{a}{b}\n\\]</div>'
    found = hooks.on_page_content(block, page=Page("a.md"))
    assert found.startswith('<div class="formula"><math') and "<mfrac>" in found


def test_formula_that_is_not_understood_is_a_warning(hooks, caplog):
    hooks.on_page_content(r'<span class="arithmatex">\(\nosuch{x}\)</span>', page=Page("a.md"))
    assert "not understood" in caplog.text


def test_name_without_an_entry_is_a_warning(hooks, caplog):
    page = Page("api/decisions.md", "::: tfp_fnspace.decisions\n")
    names = fns.decisions.__all__
    entries = "".join(f'<h2 id="tfp_fnspace.decisions.{name}"></h2>' for name in names)
    hooks.on_page_content(entries, page=page)
    assert caplog.text == ""
    hooks.on_page_content(entries.replace("suggest", "suggested"), page=page)
    assert "tfp_fnspace.decisions.suggest has no entry" in caplog.text


def test_links_out_of_the_docs_lead_to_pages(hooks):
    text = "[a](../colabs/00_tour.ipynb) [b](../../colabs/00_tour.ipynb) `](../colabs/x.ipynb)`"
    expected = "[a](colabs/00_tour.md) [b](../colabs/00_tour.md) `](../colabs/x.ipynb)`"
    assert hooks.on_page_markdown(text) == expected
    assert hooks.on_page_markdown("[c](../CHANGELOG.md)") == "[c](changelog.md)"


def test_nav_is_filled_from_the_folders(hooks):
    pages = ["api/index.md", "api/tagi.md", "methods/tagi.md"]
    nav = [{"API": ["api/*"]}, {"Methods": ["methods/*", "x.md"]}]
    expected = [{"API": ["api/index.md", "api/tagi.md"]}, {"Methods": ["methods/tagi.md", "x.md"]}]
    assert hooks._expand(nav, pages) == expected


@pytest.mark.parametrize("repository", ["", "https://github.com/someone/something"])
def test_notebooks_have_badges_where_the_repository_is_published(hooks, repository):
    page = hooks._with_note("# Title\n\ntext", ROOT / "colabs" / "00_tour.ipynb", repository)
    target = "colab.research.google.com/github/someone/something/blob/main/colabs/00_tour.ipynb"
    assert (target in page) == bool(repository)
    assert page.startswith("# Title\n\n*This page is the notebook")
