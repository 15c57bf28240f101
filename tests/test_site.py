"""The documentation site: public modules have pages, formulas are converted, links are good.

`make docs` builds it with warnings as errors. Its hook also checks that each public name has an
entry on the page of its module (`docs/site_hooks.py`).
"""

import http.server
import importlib
import importlib.util
import json
import re
import sys
import threading
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
    names = ("model.FunctionSpaceModel", "load_model", "citation")
    assert named == [f"tfp_fnspace.{name}" for name in names]
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


def test_the_gallery_has_every_notebook_under_its_title_with_a_figure_that_it_has():
    text = " ".join((ROOT / "docs" / "gallery.md").read_text(encoding="utf-8").split())
    item = re.compile(
        r"- \[([^\]]+)\]\(\.\./colabs/(\w+)\.ipynb\): [^<]+ <!-- figure (\d+): [^>]{40,} -->"
    )
    shown = {stem: (title, int(number)) for title, stem, number in item.findall(text)}
    notebooks = {path.stem: json.loads(path.read_text()) for path in ROOT.glob("colabs/*.ipynb")}
    assert shown.keys() == notebooks.keys()
    for stem, notebook in notebooks.items():
        title, number = shown[stem]
        assert notebook["cells"][0]["source"][0].strip() == f"# {title}"
        outputs = [o for cell in notebook["cells"] for o in cell.get("outputs", [])]
        assert 1 <= number <= sum("image/png" in o.get("data", {}) for o in outputs), stem


@pytest.fixture
def site_on_this_machine():
    """Yields the address of a server that knows `/here`, refuses `/refused` and nothing else."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response({"/here": 200, "/refused": 403}.get(self.path, 404))
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_addresses_of_the_web_are_visited_if_asked(tmp_path, capsys, site_on_this_machine):
    check_links = module_of("check_links")
    words = ("here", "refused", "gone")
    links = [f"[{word}]({site_on_this_machine}/{word})" for word in words]
    (tmp_path / "page.md").write_text("\n".join(links), encoding="utf-8")
    assert check_links.main(["--root", str(tmp_path)]) == 0
    capsys.readouterr()
    assert check_links.main(["--root", str(tmp_path), "--external"]) == 1
    out, errors = capsys.readouterr()
    (line,) = errors.splitlines()
    assert line.startswith("page.md:3") and line.endswith("/gone): the server answers 404")
    assert "3 addresses of the web, 1 broken" in out


def module_of(name):
    """Returns a script of `docs/` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The hooks, where the documentation's packages are installed -----------------------------------


@pytest.fixture(scope="module")
def hooks():
    for needed in ("latex2mathml", "mkdocs", "nbformat"):
        pytest.importorskip(needed)
    return module_of("site_hooks")


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


ITEM = """# Title

- [One](../colabs/01_one.ipynb): about
  it.
  <!-- figure 2: a line
  that falls -->
"""


def test_items_of_the_gallery_become_cards_with_a_figure_of_the_notebook(hooks, caplog):
    figures = {"01_one": ["colabs/01_one/01_one_3_0.png", "colabs/01_one/01_one_7_1.png"]}
    page = hooks.gallery(ITEM, figures)
    assert "[![a line that falls](colabs/01_one/01_one_7_1.png)](colabs/01_one.md)" in page
    assert "**[One](colabs/01_one.md)**: about it." in page
    assert page.startswith("# Title\n") and "<!--" not in page and caplog.text == ""


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"01_one": ["colabs/01_one/01_one_3_0.png"]}, "01_one has no figure 2, it has 1"),
        ({"01_one": ["a.png", "b.png"], "02_two": ["c.png"]}, "the notebook 02_two is not in it"),
    ],
)
def test_what_the_gallery_lacks_is_a_warning(hooks, caplog, figures, message):
    hooks.gallery(ITEM, figures)
    assert message in caplog.text


@pytest.mark.parametrize("repository", ["", "https://github.com/someone/something"])
def test_notebooks_have_badges_where_the_repository_is_published(hooks, repository):
    page = hooks._with_note("# Title\n\ntext", ROOT / "colabs" / "00_tour.ipynb", repository)
    target = "colab.research.google.com/github/someone/something/blob/main/colabs/00_tour.ipynb"
    assert (target in page) == bool(repository)
    assert page.startswith("# Title\n\n*This page is the notebook")
