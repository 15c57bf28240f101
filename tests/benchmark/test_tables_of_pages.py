"""The tables of latencies and of seconds in how-to pages."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Name of the results and of the table -> its page.
PAGES = {"export_latency": "export.md", "seconds": "sklearn.md"}


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("rows", ROOT / "benchmarks" / "tables.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.fixture
def with_export_latency(tables):
    return tables.with_export_latency


SHARED = {"machine": {"processor": "Some"}, "versions": {"tensorflow": "2.21.0"}}


def record(model, kind, **values):
    return {"model": model, "format": kind, **values, **SHARED}


def test_a_table_of_all_formats_replaces_the_old_one(with_export_latency):
    times = {"p50_ms_1": 0.1234, "p99_ms_1": 1.26, "p50_ms_1000": 12.34, "p99_ms_1000": 1234.0}
    found = [
        record("diwp", "server", kb=10.4, load_ms=5000.0, **times),
        record("tagi", "onnx", reason="it has none"),
        record("tagi", "predict", kb=1234.5, load_ms=20.0, **times),
    ]
    page = "a\n<!-- table: export_latency -->\nold\n<!-- end -->\nb\n<!-- end -->\n"
    before, *lines, after, last = with_export_latency(page, found).split("\n", 1)[1].splitlines()
    assert (before, after, last) == ("<!-- table: export_latency -->", "b", "<!-- end -->")
    assert lines == [
        "| model | answers | kB | load, ms | 1 row, p50, ms | 1 row, p99, ms | "
        "1,000 rows, p50, ms | 1,000 rows, p99, ms |",
        "| --- | --- | --- | --- | ---: | ---: | ---: | ---: |",
        "| `TAGIModel` | Keras `predict` | 1,234 | 20 | 0.12 | 1.3 | 12 | 1,234 |",
        "| `TAGIModel` | ONNX | – | – | – | – | – | – |",
        "| `DIWPModel` | the server | 10 | 5,000 | 0.12 | 1.3 | 12 | 1,234 |",
        "",
        "Measured on: Some, TensorFlow 2.21.0.",
        "<!-- end -->",
    ]


def test_a_page_without_marks_is_refused(with_export_latency):
    with pytest.raises(ValueError, match="must have the marks of the table"):
        with_export_latency("no marks", [])


def test_seconds_of_estimators_and_sizes(tables):
    found = [
        {"estimator": "tagi", "rows": 1000, "fit_seconds": 6.66, **SHARED},
        {"estimator": "tagi", "rows": 10_000, "fit_seconds": 12.3, **SHARED},
        {"estimator": "exact_gp", "rows": 10_000, "status": "refused", **SHARED},
        {"estimator": "exact_gp", "rows": 1000, "fit_seconds": 0.123, **SHARED},
    ]
    page = "a\n<!-- table: seconds -->\nold\n<!-- end -->\n"
    lines = tables.with_seconds(page, found).splitlines()
    assert lines[2:6] == [
        "|  | 1,000 rows | 10,000 rows |",
        "| --- | ---: | ---: |",
        "| TAGIRegressor | 6.7 | 12 |",
        "| exact GP | 0.12 | – |",
    ]


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_has_the_table_of_the_results(tables, name):
    text = (ROOT / "docs" / "howto" / PAGES[name]).read_text(encoding="utf-8")
    results = ROOT / "benchmarks" / "results" / f"{name}.json"
    found = json.loads(results.read_text())
    assert getattr(tables, f"with_{name}")(text, found) == text
