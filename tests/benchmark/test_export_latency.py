"""The table of latencies in the page on exports."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "howto" / "export.md"
RESULTS = ROOT / "benchmarks" / "results" / "export_latency.json"


@pytest.fixture(scope="module")
def with_export_latency():
    spec = importlib.util.spec_from_file_location("rows", ROOT / "benchmarks" / "tables.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script.with_export_latency


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


def test_the_committed_page_has_the_table_of_the_results(with_export_latency):
    text = PAGE.read_text(encoding="utf-8")
    if RESULTS.exists():
        found = json.loads(RESULTS.read_text())
        assert with_export_latency(text, found) == text, "run benchmarks/export_latency.py --page"
    else:
        assert "<!-- table: export_latency -->\n<!-- end -->" in text
