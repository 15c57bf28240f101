"""The kinds of columns."""

import json

import numpy as np
import pandas as pd
import pytest

from tfp_fnspace.commands.schema import CATEGORY, IGNORED, NUMBER, Schema


def frame():
    return pd.DataFrame(
        {
            "size": [1.5, np.nan, 3.0, 4.0],
            "city": ["Bern", "Lyon", None, "Bern"],
            "note": ["nice", "small", "loud", "far"],
            "new": [True, False, True, True],
            "zone": [1, 2, 1, 1],
            "day": pd.to_datetime(["2024-01-01"] * 4),
            "gap": [None] * 4,
            "rent": [10.0, 20.0, np.nan, 40.0],
        }
    )


def test_kinds_are_found():
    found = Schema.of(frame(), "rent", categories=["zone"])
    kinds = {column.name: column.kind for column in found.columns}
    assert kinds == {
        "size": NUMBER,
        "city": IGNORED,  # two of its three words differ, which is more than half
        "note": IGNORED,
        "new": NUMBER,
        "zone": CATEGORY,
        "day": IGNORED,
        "gap": IGNORED,
    }
    assert found.task == "regression"


def test_repeated_words_are_categories():
    table = pd.concat([frame()] * 4, ignore_index=True)
    about = {column.name: column for column in Schema.of(table, "rent").columns}["city"]
    assert about.kind == CATEGORY
    assert about.about == "2 words: Bern, Lyon; 4 missing"


def test_a_report_has_a_line_for_each_column():
    lines = Schema.of(frame(), "rent", categories=["city"], drop=["zone"]).lines(frame())
    assert [line.split()[0] for line in lines] == [
        *("rent", "size", "city", "note", "new", "zone", "day", "gap")
    ]
    assert lines[0].endswith("10 to 40; 1 rows without it are left out")
    assert lines[3].endswith("text: 4 different words in 4 rows")
    assert lines[5].endswith("as asked")


def test_inputs_have_numbers_and_categories_in_the_order_of_the_fit():
    schema = Schema.of(frame(), "rent", categories=["city", "zone"])
    table = frame()[["zone", "new", "city", "size"]]  # another order, and columns less
    found = schema.inputs(table)
    assert list(found.columns) == ["size", "city", "new", "zone"]
    assert found["size"].dtype == np.float64
    assert found["new"].tolist() == [1.0, 0.0, 1.0, 1.0]
    assert found["zone"].tolist() == ["1", "2", "1", "1"]
    assert pd.isna(found["city"][2])


def test_infinite_numbers_of_a_column_that_is_dropped_do_not_matter():
    table = frame().assign(zone=[1, 2, 1, np.inf])
    found = Schema.of(table, "rent", categories=["zone"], drop=["zone"])
    assert {column.name: column.kind for column in found.columns}["zone"] == IGNORED


def test_whole_numbers_are_one_word_with_and_without_a_point():
    schema = Schema.of(frame(), "rent", categories=["zone"])
    floats = frame().assign(zone=[1.0, 2.0, np.nan, 1.0])
    assert schema.inputs(floats)["zone"].tolist()[:2] == ["1", "2"]


def test_words_as_target_are_classes():
    schema = Schema.of(frame(), "city")
    known, y = schema.targets(frame())
    assert schema.task == "classification"
    assert known.tolist() == [True, True, False, True]
    assert y.tolist() == ["Bern", "Lyon", "Bern"]
    assert Schema.of(frame(), "zone").task == "regression"
    assert Schema.of(frame(), "zone", "classification").targets(frame())[1].tolist() == list("1211")


def test_json_holds_it():
    schema = Schema.of(frame(), "rent")
    assert Schema.from_dict(json.loads(json.dumps(schema.as_dict()))) == schema


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Schema.of(frame(), "Rent"),
            r"must have the columns \['Rent'\]. Received: columns=",
        ),
        (lambda: Schema.of(frame(), "rent", drop=["siz"]), r"must have the columns \['siz'\]"),
        (lambda: Schema.of(frame()[["note", "rent"]], "rent"), "beside the target. Received"),
        (
            lambda: Schema.of(frame(), "rent").inputs(frame().drop(columns="size")),
            r"must have the columns \['size'\]",
        ),
        (
            lambda: Schema.of(frame(), "rent").inputs(frame().assign(size=["1", "2", "x", "y"])),
            "'size' must have numbers. Received: 'x' in row 2 .of 2 such rows",
        ),
        (lambda: Schema.of(frame(), "gap", "regression").targets(frame()), "'gap' without one"),
        (
            lambda: Schema.of(frame(), "rent").inputs(frame().assign(size=[1.0, 2.0, np.inf, 4.0])),
            r"numbers of the column 'size' must be finite. Received: inf in row 2 \(of 1 such",
        ),
        (
            lambda: Schema.of(frame(), "rent", categories=["zone"]).inputs(
                frame().assign(zone=[1, -np.inf, np.inf, 1])
            ),
            r"of the column 'zone' must be finite. Received: -inf in row 1 \(of 2 such rows",
        ),
        (
            lambda: Schema.of(frame().assign(zone=[1, 2, 1, np.inf]), "rent", categories=["zone"]),
            "numbers of the column 'zone' must be finite. Received: inf in row 3",
        ),
    ],
)
def test_bad_tables_get_one_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()
