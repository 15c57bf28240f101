"""Tables with categories and missing values, by the rules of docs/howto/sklearn.md."""

import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from linear_estimators import LinearRegressor

from tfp_fnspace.sklearn import TAGIRegressor
from tfp_fnspace.sklearn.tables import TableEncoder, table_values

NAN = np.nan
SIZE = [1.0, 2.0, NAN, 3.0, 6.0]
CITY = ["b", "a", "b", None, "a"]
NEW = [True, False, True, True, False]
ROOMS = [1, 2, 3, 4, None]

#: Columns: size and rooms with their means, new, where they were missing, a and b.
EXPECTED = np.array(
    [
        [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        [2.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0],
        [3.0, 1.0, 3.0, 1.0, 0.0, 0.0, 1.0],
        [3.0, 1.0, 4.0, 0.0, 0.0, 0.0, 0.0],
        [6.0, 0.0, 2.5, 0.0, 1.0, 1.0, 0.0],
    ]
)
NAMES = ["size", "new", "rooms", "missingindicator_size", "missingindicator_rooms"]
NAMES += ["city_a", "city_b"]


def pandas_table(city=None, **columns):
    city = pd.Categorical(CITY if city is None else city)
    rooms = pd.array(ROOMS, dtype="Int64")
    return pd.DataFrame({"size": SIZE, "city": city, "new": NEW, "rooms": rooms, **columns})


def polars_table(city=pl.Categorical, **columns):
    size = [None if value != value else value for value in SIZE]
    columns = {
        "size": size,
        "city": pl.Series(CITY, dtype=city),
        "new": NEW,
        "rooms": ROOMS,
        **columns,
    }
    return pl.DataFrame(columns)


TABLES = {
    "pandas": pandas_table,
    "polars": polars_table,
    "polars_enum": lambda: polars_table(pl.Enum(["c", "b", "a"])),
}


def long_table(num_rows=60, seed=0):
    """Returns enough rows to fit, with a target that is linear in all columns."""
    rng = np.random.default_rng(seed)
    city = rng.choice(["a", "b", "c"], num_rows)
    size = rng.normal(size=num_rows)
    y = 2.0 * size + (city == "a") + 0.1 * rng.normal(size=num_rows)
    size[::7] = NAN
    return pd.DataFrame({"size": size, "city": pd.Categorical(city)}), y


@pytest.mark.parametrize("name", TABLES)
def test_columns_become_numbers(name):
    values, is_category = table_values(TABLES[name]())
    assert is_category == [False, True, False, False]
    encoder = TableEncoder().fit(values, is_category)
    np.testing.assert_array_equal(encoder.transform(values), EXPECTED)
    names = encoder.get_feature_names_out(["size", "city", "new", "rooms"])
    assert names.tolist() == NAMES


def test_missing_numbers_of_tagi_are_gaussian():
    values, is_category = table_values(pandas_table())
    mean, variance = TableEncoder(uncertain=True).fit(values, is_category).transform(values)
    np.testing.assert_array_equal(mean, EXPECTED[:, [0, 1, 2, 5, 6]])
    expected = np.zeros((5, 5))
    expected[2, 0] = np.var([1.0, 2.0, 3.0, 6.0])
    expected[4, 2] = np.var([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(variance, expected)


def test_missing_at_predict_only():
    x = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]])
    missing, means = np.array([[NAN, 1.0], [1.0, NAN]]), [[3.0, 1.0], [1.0, 5.0]]
    found = TableEncoder().fit(x, [False, False]).transform(missing)
    np.testing.assert_array_equal(found, means)
    encoder = TableEncoder(uncertain=True).fit(x, [False, False])
    np.testing.assert_array_equal(encoder.transform(x), x)
    mean, variance = encoder.transform(missing)
    np.testing.assert_array_equal(mean, means)
    np.testing.assert_allclose(variance, [[8.0 / 3.0, 0.0], [0.0, 26.0 / 3.0]])


def test_words_not_seen_and_missing_are_zeros():
    table, y = long_table()
    fitted = LinearRegressor().fit(table, y)
    rows = table.iloc[1:4].assign(city=["x", None, "x"])  # text is fine where words are known
    found = fitted.predict(rows.assign(size=0.0))
    np.testing.assert_allclose(found, found[0])
    a = fitted.predict(rows.assign(size=0.0, city="a"))
    assert np.all(np.abs(a - found) > 0.1)


def test_frames_of_pandas_and_polars_and_arrays_are_one_table():
    table, y = long_table()
    other = pl.DataFrame(
        {
            "size": [None if value != value else value for value in table["size"]],
            "city": table["city"].astype(str).tolist(),
        },
        schema={"size": pl.Float64, "city": pl.Categorical},
    )
    fitted, again = LinearRegressor().fit(table, y), LinearRegressor().fit(other, y)
    assert again.feature_names_in_.tolist() == fitted.feature_names_in_.tolist() == ["size", "city"]
    expected = fitted.predict(table)
    for found in (fitted.predict(other), again.predict(table), again.predict(other)):
        np.testing.assert_array_equal(found, expected)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        found = fitted.predict(table.to_numpy(object))
    np.testing.assert_array_equal(found, expected)


def test_nan_in_arrays_is_missing():
    table, y = long_table()
    plain = table[["size"]]
    found = LinearRegressor().fit(plain.to_numpy(), y).predict(plain.to_numpy())
    np.testing.assert_array_equal(found, LinearRegressor().fit(plain, y).predict(plain))


def test_columns_with_heavy_tails_are_drawn_together():
    generator = np.random.default_rng(0)
    plain, heavy = generator.normal(size=500), np.exp(3.0 * generator.normal(size=500))
    heavy[::50] = np.nan
    values = np.stack([plain, heavy], axis=1)
    encoder = TableEncoder(uncertain=True).fit(values, [False, False])
    means, variances = encoder.transform(values)
    np.testing.assert_array_equal(means[:, 0], plain)
    low, median, high = np.nanquantile(heavy, [0.05, 0.5, 0.95])
    expected = np.arcsinh((heavy - median) / (0.2 * (high - low)))
    known = ~np.isnan(heavy)
    np.testing.assert_allclose(means[known, 1], expected[known], rtol=1e-12)
    np.testing.assert_allclose(means[~known, 1], expected[known].mean(), rtol=1e-12)
    np.testing.assert_allclose(variances[~known, 1], expected[known].var(), rtol=1e-12)


def test_output_that_is_set_globally_is_for_transformers():
    table, y = long_table()
    expected = LinearRegressor().fit(table, y).predict(table)
    with sklearn.config_context(transform_output="pandas"):
        np.testing.assert_array_equal(LinearRegressor().fit(table, y).predict(table), expected)


def test_categories_may_be_intervals():
    table = pandas_table(decade=pd.cut([1.0, 11.0, 12.0, 25.0, NAN], [0, 10, 20, 30]))
    values, is_category = table_values(table)
    found = TableEncoder().fit(values, is_category).transform(values)
    decades = [[1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    np.testing.assert_array_equal(found, np.hstack([EXPECTED, decades]))


@pytest.mark.parametrize("make", [pandas_table, polars_table])
@pytest.mark.parametrize(
    ("column", "rule"),
    [
        (["x", "y", "x", "x", "z"], r"with text in the columns \['other'\]: `X.\w+\(dict.fromkeys"),
        (pd.date_range("2026-01-01", periods=5).to_numpy(), r"X\['other'\].*\(dates\).*makes days"),
        ((np.arange(5) * np.timedelta64(1, "ms")), r"\(durations\): `x / .*makes seconds"),
        ([1.0, 2.0, np.inf, 4.0, 5.0], "Input X contains infinity"),
    ],
)
def test_other_columns_are_refused(make, column, rule):
    with pytest.raises((TypeError, ValueError), match=rule):
        LinearRegressor().fit(make(other=column), np.arange(5.0))


def test_what_the_error_says_makes_categories():
    table, y = long_table()
    table["city"] = table["city"].astype(str)
    for text in (table, pl.DataFrame(table.to_dict("list"))):
        with pytest.raises(TypeError, match="makes categories of them") as caught:
            LinearRegressor().fit(text, y)
        how = re.search("`(X.(?:astype|cast).*)` makes", str(caught.value))[1]
        LinearRegressor().fit(eval(how, {"X": text, "pl": pl}), y)


def test_other_columns_than_in_training_are_refused():
    table, y = long_table()
    fitted = LinearRegressor().fit(table, y)
    for other in (table[["city", "size"]], table[["size"]], table.assign(more=1.0)):
        with pytest.raises(ValueError, match="feature names should match"):
            fitted.predict(other)


@pytest.mark.parametrize("in_training", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_tagi_is_less_sure_where_a_number_is_missing(in_training):
    table, y = long_table()
    known = table.assign(size=table["size"].mean())
    train = table if in_training else table.fillna({"size": 0.0})
    fitted = TAGIRegressor(time_limit=0.01, random_state=0).fit(train, y)
    (mean, unsure), (same, sure) = (
        fitted.predict(rows, return_std=True) for rows in (table.assign(size=NAN), known)
    )
    assert np.all(unsure > sure) and np.max(np.abs(mean - same)) < np.max(unsure)
    assert fitted.predict_quantiles(table.assign(size=NAN), [0.1, 0.9]).shape == (60, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.partial_fit(table.iloc[:1], y[:1])
    assert not np.allclose(fitted.predict(known), same)


def test_columns_are_drawn_together_only_where_that_predicts_better():
    """The target is linear in a column with heavy tails, or in its logarithm."""
    generator = np.random.default_rng(0)
    x = np.exp(1.5 * generator.normal(size=(300, 1)))
    noise = 0.3 * generator.normal(size=300)
    straight = LinearRegressor().fit(x, x[:, 0] + noise)
    bent = LinearRegressor().fit(x, np.log(x[:, 0]) + noise)
    assert not np.isfinite(straight.encoder_.scales_).any()
    assert np.isfinite(bent.encoder_.scales_).all()
