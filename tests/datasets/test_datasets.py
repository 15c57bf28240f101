import os
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tfp_fnspace import datasets

# Each test of a distribution below fails by chance with this probability over seeds; the seed here
# is fixed.
FALSE_FAIL = 1e-6

TOYS = {
    "cubic": datasets.cubic,
    "periodic": datasets.periodic,
    "piecewise_constant": datasets.piecewise_constant,
    "piecewise_linear": datasets.piecewise_linear,
    "step_1d": datasets.step_1d,
    "step_2d": datasets.step_2d,
    "bimodal": datasets.bimodal,
    "heteroscedastic": datasets.heteroscedastic,
    "kinked": datasets.kinked,
}
PAPER_SIZE = {
    "cubic": 20,
    "periodic": 20,
    "piecewise_constant": 40,
    "piecewise_linear": 40,
    "step_1d": 40,
    "step_2d": 49,
    "bimodal": 1000,
    "heteroscedastic": 1000,
    "kinked": 1000,
}
UCI = ["boston", "energy", "naval", "power", "protein", "wine", "yacht"]


def assert_distribution(values, distribution):
    """Tests i.i.d. values by Kolmogorov-Smirnov against a frozen SciPy distribution or a CDF."""
    cdf = distribution if callable(distribution) else distribution.cdf
    assert stats.kstest(np.ravel(values), cdf).pvalue > FALSE_FAIL


@pytest.fixture(scope="module")
def data_dir():
    root = Path(__file__).resolve().parents[2]
    folder = Path(os.environ.get(datasets.DATA_DIR_VARIABLE, root / ".." / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"benchmark files not found: no folder {folder}")
    return folder


@pytest.fixture
def write(tmp_path):
    """Writes a valid archive with some arrays replaced (None: left out)."""

    def write_file(name="toy", **replaced):
        arrays = {
            "x": np.arange(12.0).reshape(6, 2),
            "y": np.arange(6.0)[:, np.newaxis],
            "test_index": np.array([[0, 1], [5, 3]]),
        }
        arrays = {k: v for k, v in (arrays | replaced).items() if v is not None}
        path = tmp_path / f"{name}.npz"
        path.parent.mkdir(exist_ok=True)
        np.savez(path, **arrays)
        return tmp_path

    return write_file


# ------------------------------------------------------------------------------- toys


@pytest.mark.parametrize("name", TOYS)
def test_toy_has_the_size_of_the_paper_in_float64(name):
    toy = TOYS[name]()
    assert toy.x.shape == (PAPER_SIZE[name], 2 if name == "step_2d" else 1)
    assert toy.y.shape == (PAPER_SIZE[name], 1)
    assert toy.x.dtype == toy.y.dtype == np.float64


@pytest.mark.parametrize("name", TOYS)
def test_toy_is_a_function_of_its_seed(name):
    first, again, other = TOYS[name](3), TOYS[name](3), TOYS[name](4)
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.y, again.y)
    assert not np.array_equal(first.y, other.y)


@pytest.mark.parametrize("name", [name for name in TOYS if name != "bimodal"])
def test_f_is_the_function_at_x(name):
    toy = TOYS[name](1)
    assert toy.f.shape == toy.y.shape
    np.testing.assert_array_equal(toy.f, toy.function(toy.x))


@pytest.mark.parametrize(
    ("make", "stddev"),
    [
        (lambda: datasets.cubic(0, 4000), 3.0),
        (lambda: datasets.periodic(0, 4000), 0.2),
        (lambda: datasets.step_1d(0, 4000), 0.5),
        (lambda: datasets.step_2d(0, 60), 0.5),
        (lambda: datasets.kinked(0, 4000), 2.0),
    ],
)
def test_noise_is_normal_with_the_stated_stddev(make, stddev):
    toy = make()
    assert_distribution(toy.y - toy.f, stats.norm(0.0, stddev))


def test_heteroscedastic_noise_has_stddev_two_times_sine():
    toy = datasets.heteroscedastic(0, 4000)
    np.testing.assert_allclose(toy.f, 7 * np.sin(toy.x) + 10)
    assert_distribution((toy.y - toy.f) / np.sin(toy.x), stats.norm(0.0, 2.0))


def test_bimodal_given_x_is_the_mixture_of_two_curves():
    x, y, f, function = datasets.bimodal(0, 4000)
    assert f is None and function is None
    transformed = 0.5 * stats.norm.cdf(y - 10 * np.sin(x - 0.5))
    transformed += 0.5 * stats.norm.cdf(y - 10 * np.cos(x - 0.5))
    assert_distribution(transformed, stats.uniform())


def test_bimodal_chooses_the_curve_independently_of_x():
    x, y, _, _ = datasets.bimodal(0, 4000)
    gap = np.abs(np.sin(x - 0.5) - np.cos(x - 0.5))
    # Where the curves are 10 apart, the nearer one is the chosen one except for 6e-7 a point.
    far = gap > 1.0
    sine = np.abs(y - 10 * np.sin(x - 0.5)) < np.abs(y - 10 * np.cos(x - 0.5))
    for half in (x < 0, x >= 0):
        chosen = sine[far & half]
        assert stats.binomtest(int(chosen.sum()), chosen.size).pvalue > FALSE_FAIL


@pytest.mark.parametrize(
    ("make", "low", "high"),
    [
        (datasets.cubic, -4, 4),
        (datasets.bimodal, -4, 4),
        (datasets.heteroscedastic, -4, 4),
        (datasets.kinked, -4, 5),
    ],
)
def test_inputs_are_uniform(make, low, high):
    assert_distribution(make(0, 4000).x, stats.uniform(low, high - low))


def test_periodic_inputs_are_uniform_on_both_sides_of_the_gap():
    x = datasets.periodic(0, 4000).x
    assert np.abs(x).min() >= 0.5
    assert_distribution(x - np.sign(x) * 0.5, stats.uniform(-1.5, 3.0))


@pytest.mark.parametrize("make", [datasets.piecewise_constant, datasets.piecewise_linear])
def test_piecewise_inputs_lie_at_both_ends_without_noise(make):
    toy = make(0, 5)
    assert ((toy.x[:3] >= 0.0) & (toy.x[:3] <= 0.2)).all()
    assert ((toy.x[3:] >= 0.8) & (toy.x[3:] <= 1.0)).all()
    np.testing.assert_array_equal(toy.y, toy.f)


def test_piecewise_constant_has_one_jump_less_than_levels():
    grid = np.linspace(0, 1, 20001)[:, np.newaxis]
    num_jumps = []
    for seed in range(300):
        f = datasets.piecewise_constant(seed).function(grid)
        assert f.min() >= 0.0 and f.max() <= 1.0
        num_jumps.append(np.count_nonzero(np.diff(f[:, 0])))
    # A sum of Poisson counts is Poisson. Two jumps fall in one of 20000 cells with probability
    # about 300 * 9 / 2 / 20000 = 0.07 in all, which moves the sum by 1.
    total = np.sum(num_jumps)
    assert stats.poisson(900).ppf(FALSE_FAIL / 2) - 1 <= total
    assert total <= stats.poisson(900).ppf(1 - FALSE_FAIL / 2)


def test_piecewise_linear_is_continuous_and_ends_at_zero():
    toy = datasets.piecewise_linear(2)
    assert toy.function(np.array([[1.0]])) == 0.0
    # At a distance of 1e-9, a jump stands out and any slope below 1e5 does not.
    grid = np.linspace(0, 1 - 1e-9, 1001)[:, np.newaxis]
    np.testing.assert_allclose(toy.function(grid), toy.function(grid + 1e-9), atol=1e-4)


def test_three_jumps_take_the_upper_level_from_the_left_end_on():
    f = datasets.step_1d().function(np.array([[-2.0], [-1.0], [-0.01], [0.0], [0.99], [1.0]]))
    np.testing.assert_array_equal(f[:, 0], [0, 5, 5, 0, 0, 5])


@pytest.mark.parametrize(
    ("function", "x", "expected"),
    [
        ("one_jump", [0.0, 0.1], [0, 5]),
        ("two_jumps", [-1.0, -2 / 3, 0.0, 2 / 3], [0, 5, 5, 0]),
        ("piecewise_smooth", [-1.0, 0.0, 1.0], [5, 8, 6]),
        ("smooth", [0.0, 1.0], [-2, -2 * np.cos(1) ** 2 + 3 * np.tanh(1) - 2]),
    ],
)
def test_other_functions_on_the_line(function, x, expected):
    f = datasets.step_1d(function=function).function(np.array(x)[:, np.newaxis])
    np.testing.assert_allclose(f[:, 0], expected)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("quadrants", [0, 5, 5, 10]),
        ("diagonal", [0, 5, 0, 5]),
        ("curved_edge", [0, 5, 5, 5]),
        ("smooth", [1, 1, 3, 1]),
    ],
)
def test_functions_on_the_plane(function, expected):
    corners = np.array([[-1.0, -1.0], [1.0, 0.0], [-1.0, 1.0], [1.0, 1.0]])
    f = datasets.step_2d(function=function).function(corners)
    np.testing.assert_allclose(f[:, 0], expected)


def test_edge_of_the_diagonal_step_belongs_to_the_lower_level():
    toy = datasets.step_2d(points_per_axis=7, function="diagonal")
    assert np.count_nonzero(toy.f) == (49 - 7) / 2


@pytest.mark.parametrize(
    ("make", "table", "inputs"),
    [
        (datasets.step_1d, "step1d_train.csv", ["x"]),
        (datasets.step_2d, "step2d_train.csv", ["x1", "x2"]),
    ],
)
def test_steps_agree_with_the_published_data(data_dir, make, table, inputs):
    published = np.genfromtxt(data_dir / "stable" / table, delimiter=",", names=True)
    toy = make()
    x = np.stack([published[name] for name in inputs], axis=1)
    np.testing.assert_allclose(toy.x, x, atol=1e-12)
    assert_distribution(published["y"] - toy.f[:, 0], stats.norm(0.0, 0.5))


def test_num_points_must_be_positive():
    with pytest.raises(ValueError, match=r"`num_points` must be a positive integer. Rec.*=0"):
        datasets.cubic(num_points=0)


def test_num_points_must_be_an_integer():
    with pytest.raises(ValueError, match=r"Received: num_points=10.5"):
        datasets.bimodal(num_points=10.5)


def test_a_grid_needs_two_points_per_axis():
    with pytest.raises(ValueError, match=r"`points_per_axis` must be an integer of at least 2"):
        datasets.step_2d(points_per_axis=1)


def test_unknown_function_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"one of \['three_jumps', .*Received: function='cube'"):
        datasets.step_1d(function="cube")


# ------------------------------------------------------------------------------- files


@pytest.mark.parametrize("name", UCI)
def test_uci_splits_are_disjoint_and_complete(data_dir, name):
    benchmark = datasets.load(f"uci/{name}", data_dir)
    num_rows = len(benchmark.x)
    assert benchmark.num_splits == (5 if name == "protein" else 20)
    assert benchmark.x.dtype == benchmark.y.dtype == np.float64
    rows = np.arange(num_rows, dtype=float)[:, np.newaxis]
    numbered = datasets.Benchmark(name, rows, rows, benchmark.test_index)
    for k in range(benchmark.num_splits):
        train, _, test, _ = numbered.split(k)
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test]), axis=0), rows)
        assert len(test) == round(num_rows / 10)
    split = benchmark.split(0)
    np.testing.assert_array_equal(split.x_test, benchmark.x[benchmark.test_index[0]])
    np.testing.assert_array_equal(split.y_test, benchmark.y[benchmark.test_index[0]])


def test_one_split_in_float32_loads(data_dir):
    flights = datasets.load("nyc_flights", data_dir / "large")
    assert flights.num_splits == 1
    assert flights.x.dtype == flights.y.dtype == np.float32
    assert flights.split(0).x_test.shape == (27385, 8)


def test_available_lists_what_load_reads(data_dir):
    names = datasets.available(data_dir)
    assert {f"uci/{name}" for name in UCI} <= set(names)
    assert "mnist/mnist" not in names
    assert datasets.available(data_dir / "uci") == UCI


def test_split_keeps_the_row_order_of_the_file(write):
    split = datasets.load("toy", write()).split(1)
    np.testing.assert_array_equal(split.y_train[:, 0], [0, 1, 2, 4])
    np.testing.assert_array_equal(split.y_test[:, 0], [5, 3])
    np.testing.assert_array_equal(split.x_test, [[10, 11], [6, 7]])


def test_vectors_become_columns_and_one_split(write):
    benchmark = datasets.load("toy", write(y=np.arange(6), test_index=np.array([2, 4])))
    assert benchmark.y.shape == (6, 1)
    assert benchmark.y.dtype == np.float64
    assert benchmark.num_splits == 1


def test_folder_comes_from_the_environment(write, monkeypatch):
    monkeypatch.setenv(datasets.DATA_DIR_VARIABLE, str(write("sub/toy")))
    assert datasets.available() == ["sub/toy"]
    assert datasets.load("sub/toy").num_splits == 2


def test_no_folder_names_both_ways(monkeypatch):
    monkeypatch.delenv(datasets.DATA_DIR_VARIABLE, raising=False)
    with pytest.raises(ValueError, match="argument `data_dir` .* variable TFP_FNSPACE_DATA"):
        datasets.load("boston")


def test_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="must be an existing folder. Received: .*nowhere"):
        datasets.load("boston", tmp_path / "nowhere")


def test_missing_name_lists_what_is_there(write):
    with pytest.raises(FileNotFoundError, match=r"one of \['toy'\] .*Received: name='boston'"):
        datasets.load("boston", write())


def test_missing_array(write):
    with pytest.raises(ValueError, match=r"\['test_index'\] missing. Received: .*\['x', 'y'\]"):
        datasets.load("toy", write(test_index=None))


def test_truncated_file(write):
    path = write() / "toy.npz"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match="must be a complete .npz archive. Received: .*toy.npz"):
        datasets.load("toy", path.parent)


@pytest.mark.parametrize(
    "replaced",
    [
        {"x": np.zeros(6)},
        {"x": np.zeros((5, 2))},
        {"x": np.zeros((6, 0))},
        {"y": np.zeros((6, 1, 1))},
        {"y": np.zeros(())},
    ],
)
def test_wrong_shapes(write, replaced):
    with pytest.raises(ValueError, match=r"`x` must have shape \[N, X\].*Received: x.shape="):
        datasets.load("toy", write(**replaced))


def test_text_is_no_input(write):
    with pytest.raises(ValueError, match="`x` must hold real numbers. Received: x.dtype=<U1"):
        datasets.load("toy", write(x=np.full((6, 2), "a")))


def test_pickled_objects_are_refused(write):
    with pytest.raises(ValueError, match="allow_pickle=False"):
        datasets.load("toy", write(x=np.full((6, 2), None)))


@pytest.mark.parametrize("index", [np.zeros((1, 1, 1), int), np.zeros((2, 0), int), np.zeros(2)])
def test_wrong_test_index(write, index):
    with pytest.raises(ValueError, match="`test_index` must hold integers in shape"):
        datasets.load("toy", write(test_index=index))


@pytest.mark.parametrize("row", [-1, 6])
def test_test_index_out_of_range(write, row):
    with pytest.raises(ValueError, match="`test_index` must lie between 0 and 5"):
        datasets.load("toy", write(test_index=np.array([0, row])))


def test_repeated_test_index(write):
    with pytest.raises(ValueError, match="must not name a row twice in one split"):
        datasets.load("toy", write(test_index=np.array([[0, 1], [4, 4]])))


def test_split_without_training_rows(write):
    with pytest.raises(ValueError, match="must leave rows to train on. Received: 6 test rows of 6"):
        datasets.load("toy", write(test_index=np.arange(6)))


@pytest.mark.parametrize("k", [-1, 2, 0.0, True])
def test_split_out_of_range(write, k):
    benchmark = datasets.load("toy", write())
    with pytest.raises(ValueError, match=f"from 0 to 1 for 'toy'. Received: k={k}"):
        benchmark.split(k)


# ------------------------------------------------------------------------------- folds


@pytest.mark.parametrize(("num_rows", "num_folds"), [(20, 5), (23, 5), (7, 7), (2, 2)])
def test_folds_cover_every_row_once_with_equal_sizes(num_rows, num_folds):
    folds = datasets.k_fold(num_rows, num_folds, seed=1)
    valid = np.concatenate([valid for _, valid in folds])
    np.testing.assert_array_equal(np.sort(valid), np.arange(num_rows))
    assert np.ptp([len(valid) for _, valid in folds]) <= 1
    for train, valid in folds:
        both = np.sort(np.concatenate([train, valid]))
        np.testing.assert_array_equal(both, np.arange(num_rows))


def test_folds_are_a_function_of_the_seed():
    first, again, other = (datasets.k_fold(30, 3, seed=seed)[0][1] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("num_folds", [1, 11, 2.0])
def test_number_of_folds_out_of_range(num_folds):
    with pytest.raises(ValueError, match=f"from 2 to `num_rows`=10. Received: .*={num_folds}"):
        datasets.k_fold(10, num_folds)


def test_folds_need_two_rows():
    with pytest.raises(ValueError, match="`num_rows` must be an integer of at least 2"):
        datasets.k_fold(1, 2)


def test_example_table_is_as_documented_and_no_straight_line():
    x, y, x_test, y_test, columns = datasets.example_table()
    assert (x.shape, y.shape, x_test.shape, y_test.shape) == (
        (1000, 4),
        (1000, 1),
        (250, 4),
        (250, 1),
    )
    assert columns == ("carat", "cut", "colour", "clarity", "price")
    assert np.all(np.isfinite(x)) and (y.min(), y.max()) == (348.0, 18574.0)
    assert [np.unique(x[:, i]).size for i in (1, 2, 3)] == [5, 7, 8]
    # This fits least squares to prices and to their logarithms.
    design = np.column_stack([np.ones(len(x)), x, np.log(x[:, 0])])
    prices, *_ = np.linalg.lstsq(design[:, :-1], y, rcond=None)
    logarithms, *_ = np.linalg.lstsq(design, np.log(y), rcond=None)
    new = np.column_stack([np.ones(len(x_test)), x_test, np.log(x_test[:, 0])])
    errors = [y_test - new[:, :-1] @ prices, y_test - np.exp(new @ logarithms)]
    straight, curved = (np.sqrt(np.mean(each**2)) for each in errors)
    assert curved < 0.8 * straight < 0.4 * y_test.std()


def test_flipped_bits_are_refused_or_change_nothing(write):
    rng = np.random.default_rng(0)
    path = write(x=rng.normal(size=(6, 2))) / "toy.npz"
    whole, refused = path.read_bytes(), 0
    expected = datasets.load("toy", path.parent).x
    for place in range(0, len(whole), 7):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << rng.integers(8)
        path.write_bytes(flipped)
        try:
            np.testing.assert_array_equal(datasets.load("toy", path.parent).x, expected)
        except ValueError as error:
            assert f"Received: path='{path}'" in str(error)
            refused += 1
    assert refused > 50
