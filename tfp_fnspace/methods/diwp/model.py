"""Deep inverse Wishart processes as a Keras model."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import arguments
from tfp_fnspace.callbacks import JitterReport
from tfp_fnspace.layers.draws import function_draws
from tfp_fnspace.likelihoods.additive import default_noise
from tfp_fnspace.likelihoods.energy import data_term
from tfp_fnspace.math.random import as_seed, fold_in, split
from tfp_fnspace.math.row_weights import weighted
from tfp_fnspace.methods.diwp import checks, equations
from tfp_fnspace.methods.diwp.deep_kernel import DeepKernel
from tfp_fnspace.methods.diwp.layers import FeaturesToGram
from tfp_fnspace.methods.diwp.layers.base import check_dtype
from tfp_fnspace.methods.diwp.options import Start
from tfp_fnspace.methods.diwp.start import MAX_ROWS, fitted_start
from tfp_fnspace.model import GradientModel, inducing
from tfp_fnspace.model.checks import input_tensor
from tfp_fnspace.typing import Array, Config, GaussianMoments, Network, Rows, Seed, Shape, Tensor

#: How many numbers the joint covariances of a chunk of function draws may hold, and their maximum
#: number of points.
_SAMPLE_NUMBERS, _MAX_POINTS = 2**26, 10_000


@keras.saving.register_keras_serializable(package="tfp_fnspace.diwp")
class DIWPModel(GradientModel):
    r"""Deep inverse Wishart process.

    This is a deep kernel machine with kernel matrices instead of features. They are alternately
    transformed by kernels and sampled by inverse Wishart processes,

        K_1 = K(Z Z^T / N_0),
        G_l ~ W^-1(delta_l K_l, delta_l + P + 1),   K_{l+1} = K(G_l),   l = 1 ... depth,
        f_d ~ N(0, a^2 K_{depth+1}),    y ~ p(y | f),

    with P learned inducing points, conditional priors for the data, and the approximate posterior
    of equation 21. Unless alpha is positive, training maximises the evidence lower bound
    (equation 27) by gradients. The divergences of all layers, and f at the data given the Gram
    matrices, have closed forms. As delta tends to infinity, the limit is the deterministic kernel
    of an infinitely wide network.

    With alpha in (0, 1], each row's term E_q log p(y_n | f_n) of the bound is replaced by

        1/alpha log E_q p(y_n | f_n)^alpha,

    which tends to it as alpha goes to 0. This is not a bound, but an objective closer to the
    predictive density of each row. It fits less noise in the likelihood and moves the rest into the
    variance of f. The spread of f, its joint distribution and function draws then do not describe
    the uncertainty about f.

    `History` has, in the user's units and per row, `elbo`, `log_likelihood` (expected, under the
    approximate posterior) and `kl`, with `elbo = log_likelihood - kl = -loss`. With alpha > 0 there
    is no `elbo`, and `log_likelihood` is the mean of the term above. `jittered` is the mean number
    of matrices in a step that had no Cholesky factor before more was added to their diagonal. A
    warning reports this once per run, and at its end if predictions need it.

    Args:
        network: A `diwp.DeepKernel`, which is built for the shapes of the first data, by default
            `DeepKernel()`; or a Keras model of layers of `tfp_fnspace.diwp` from inputs in model
            units to the moments of f. The inducing points start at rows of the first data (but see
            `start`); for a dataset, at rows of as many batches as necessary.
        likelihood: A layer of `tfp_fnspace.likelihoods`. The default is Gaussian noise with a
            learned scale for each column of the targets.
        num_outputs: D. The default is the number of columns of the first targets. It is required
            for `Categorical`, as the number of classes. A Keras model has its own.
        num_samples: S, the number of posterior samples in a training step.
        num_eval_samples: Number of samples of all predictions.
        standardize: Whether to standardise inputs and targets by the data of the first `fit`; the
            default is true for rows of rank 1.
        seed: Non-negative integer: the same seed gives the same run.
        start: `diwp.Start`: where training starts.
        alpha: Number from 0, the lower bound, to 1. The expectation inside the logarithm is a mean
            over `num_samples`; few samples have the effect of a smaller alpha. Over f it has a
            closed form if the noise is Gaussian, else it uses one draw of f for each sample.
        **kwargs: `name`, `dtype` (use `"float64"` if delta is very large).

    Raises:
        TypeError: If `network` is not one, or `likelihood` not a likelihood.
        ValueError: If an argument is not as described.

    Example:
        >>> kernel = tfp_fnspace.diwp.DeepKernel(50, kernel="squared_exponential")
        >>> model = tfp_fnspace.diwp.DIWPModel(kernel)
        >>> x = np.linspace(-2.0, 2.0, 100)[:, np.newaxis]
        >>> history = model.fit(x, np.sin(3.0 * x), epochs=100, batch_size=100)
        >>> mean = model.predict(x)["mean"]  # [100, 1]

    References:
        Aitchison, Yang & Ober (2021), "Deep kernel processes", ICML.
        Li & Gal (2017), "Dropout inference in Bayesian neural networks with alpha-divergences",
        ICML (positive alpha).
        Jankowiak, Pleiss & Gardner (2020), "Parametric Gaussian process regressors", ICML (alpha of
        1 without random matrices).
    """

    weights_allowed = "positive"
    object_names = ("likelihood", "network", "start")
    draws_smooth_functions, draws_jointly = False, True

    network: Network
    _given_network: Any  # a `DeepKernel`, or a network

    def __init__(
        self,
        network: DeepKernel | Network | None = None,
        *,
        likelihood: keras.layers.Layer | None = None,
        num_outputs: int | None = None,
        num_samples: int = 10,
        num_eval_samples: int = 100,
        start: Start | None = None,
        alpha: float = 0.0,
        standardize: bool | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(autocast=False, **kwargs)
        check_dtype(self.variable_dtype)
        self.num_samples = arguments.checked_count("num_samples", num_samples)
        self.num_eval_samples = arguments.checked_count("num_eval_samples", num_eval_samples)
        self.start = Start.checked("start", start)
        self.alpha = arguments.checked_fraction("alpha", alpha)
        self._standardize_argument = standardize
        if likelihood is None:
            likelihood = default_noise(self.variable_dtype)
        self._given_outputs = None
        if num_outputs is not None:
            self._given_outputs = arguments.checked_count("num_outputs", num_outputs)
        self.setup(likelihood, True if standardize is None else standardize, seed)
        checks.check_alpha(self.alpha, self.likelihood, self.num_samples)
        network = DeepKernel() if network is None else network
        self._given_network, self.network = network, None
        if not self._is_to_be_built:
            checks.check_network(network, num_outputs)
        if self.start.fit is not None:
            checks.check_start(self.start, self.likelihood, network)
        if isinstance(network, DeepKernel):
            self.rows_for_shapes = network.inducing_points
        else:
            self._setup_network(network, network.input_shape[1:], network.layers[-1].units)

    @property
    def _is_to_be_built(self):
        return isinstance(self._given_network, DeepKernel)

    # Sizes ------------------------------------------------------------------------------------

    def create(self, input_shape: Shape, num_columns: int, num_rows: int) -> None:
        """Builds the network for the shapes of the first data."""
        num_outputs = self._given_outputs or num_columns
        self.likelihood.check_outputs(num_outputs)
        count = inducing.number_for(num_rows, self._given_network.inducing_points)
        self._build_network(input_shape, num_outputs, count)

    def _build_network(self, input_shape, num_outputs, num_inducing):
        sizes = tuple(input_shape), num_outputs, num_inducing
        network = self._given_network.network(*sizes, self.variable_dtype)
        self._setup_network(network, input_shape, num_outputs)

    def _setup_network(self, network, input_shape, num_outputs):
        self.network = network
        most = 0 if self.start.fit is None else MAX_ROWS
        self.rows_to_prepare = max(self._features.inducing_points, most)
        if self._standardize_argument is None:
            self.standardize = len(input_shape) == 1
        self.setup_shapes([input_tensor(input_shape, self.variable_dtype)], num_outputs)

    @property
    def _features(self):
        return next(layer for layer in self.network.layers if isinstance(layer, FeaturesToGram))

    # Training ---------------------------------------------------------------------------------

    def default_optimizer(
        self, total_steps: int | None, part: str = "model"
    ) -> keras.optimizers.Optimizer:
        """Makes Adam, with 1e-2 in the first half of the first `fit` and 1e-3 after it (section 7).

        After a fitted start, the rates are a tenth of that.
        """
        half = (total_steps or 8000) // 2
        rates = [1e-2, 1e-3] if self.start.fit is None else [1e-3, 1e-4]
        schedule = keras.optimizers.schedules.PiecewiseConstantDecay([half], rates)
        return keras.optimizers.Adam(schedule)

    def prepare(self, inputs: list[Array], targets: Array, batches: Iterable[Any]) -> None:
        """Sets the initial inducing points and pseudo-targets, at rows or fitted."""
        if self.start.fit is not None:
            self._start_at_fitted_process(inputs[0], targets)
            return
        layer, seeds = self._features, self.counters.seeds
        is_greedy = self.start.rows == "greedy"
        scaled = self._scaled if is_greedy else None
        rows = inducing.starting_rows(inputs[0], layer.inducing_points, seeds, scaled)
        x = self._scaled(inputs[0][rows])
        layer.inducing_inputs.assign(tf.reshape(x, layer.inducing_inputs.shape))
        if not self.likelihood.is_classifier:
            y = self.units.target_scaler(tf.constant(targets[rows]))
            self.network.layers[-1].posterior.v.assign(
                tf.transpose(self.likelihood.start_values(y))
            )

    def _scaled(self, x):
        """Returns rows of the input in model units."""
        return self.units.scaled([tf.constant(x)])[0]

    def _start_at_fitted_process(self, inputs, targets):
        count, seeds = self._features.inducing_points, self.counters.seeds
        rows, num_distinct = inducing.rows_of_a_fit(inputs, targets, count, seeds)
        x = tf.reshape(self._scaled(inputs[rows]), [len(rows), -1])
        y = self.units.target_scaler(tf.constant(targets[rows]))
        size = max(count, min(MAX_ROWS, num_distinct))
        how = {"greedy": self.start.rows == "greedy", "move": self.start.fit == "lower_bound"}
        start = fitted_start(self.network, self.likelihood, x, y, size, count, **how)
        start.assign_to(self.network, self.likelihood)

    def objective(
        self,
        inputs: list[Tensor],
        targets: Tensor,
        num_rows: Tensor,
        seed: Seed,
        row_weights: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        samples = self._samples(self.num_samples)
        seeds = split(seed, 2)
        with function_draws(samples, seeds[0]) as draws:
            moments = self.network(inputs[0])
        term = data_term(
            self.likelihood, moments, targets, self.alpha, seeds[1], num_draws=self.num_samples
        )
        divergence = draws.kl(self.variable_dtype)
        term = weighted(term, row_weights)
        value, log_likelihood, kl = equations.bound(term, divergence, num_rows)
        jittered = tf.cast(draws.num_jittered, kl.dtype)
        parts = {"log_likelihood": log_likelihood, "kl": kl, "jittered": jittered}
        if self.alpha == 0.0:
            parts["elbo"] = value
        return -value, parts

    def callbacks_of_fit(self, given: Any) -> list[keras.callbacks.Callback]:
        return [JitterReport("A covariance at the inducing points", self._jittered_when_predicting)]

    def _jittered_when_predicting(self):
        """Returns how many matrices of predictions need more on their diagonal than the jitter."""
        row = tf.convert_to_tensor(self._features.inducing_inputs)[:1]
        seed = self.counters.seeds.stream("predict")
        with self._prediction_draws(self.num_eval_samples, seed) as draws:
            self.network(tf.reshape(row, [1, *self.input_tensors[0].shape[1:]]))
        return int(draws.num_jittered)

    def _samples(self, count):
        """Returns the number of samples, which is 1 if nothing is random."""
        return 1 if self._is_to_be_built and not self._given_network.is_random else count

    # Prediction -------------------------------------------------------------------------------

    def _prediction_draws(self, num_samples, seed):
        # All points share the noise, so that a prediction does not depend on its batch.
        return function_draws(self._samples(num_samples), seed, noise="shared")

    def moments(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> GaussianMoments:
        count = self._samples(num_samples)
        with self._prediction_draws(num_samples, seed):
            moments = self.network(inputs[0])
        if not self._is_to_be_built:
            return moments
        return GaussianMoments(*(tf.ensure_shape(v, [count, None, None]) for v in moments))

    def sample_functions(self, x: Rows, num_samples: int, seed: Seed = (0, 0)) -> Array:
        """Draws functions from the posterior, jointly at all points of one call.

        A draw costs `O((P + N)^3)`. Many draws are made in chunks, so that memory is bounded.

        Args:
            x: As for `predict`, arrays of at most 10,000 rows.
            num_samples: S, a positive integer.
            seed: Integer or two integers. The same seed gives the same functions for the same x and
                S; draws at other points are different functions.

        Returns:
            NumPy array `[S, N, D]` in the user's units.

        Raises:
            ValueError: If `num_samples` is not a positive integer, or the data are bad.
        """
        arguments.check_count("num_samples", num_samples)
        num_rows = len(self.checked_inputs(x)[0])
        if num_rows > _MAX_POINTS:
            raise ValueError(
                f"`x` must have at most {_MAX_POINTS} rows: functions are drawn from their joint "
                f"distribution, whose covariance is a matrix [N, N]. Received: x with {num_rows} "
                "rows"
            )
        numbers = self.num_outputs * (num_rows + self._features.inducing_points) ** 2
        num_chunks = -(-int(num_samples) // max(1, _SAMPLE_NUMBERS // numbers))
        size = -(-int(num_samples) // num_chunks)  # one size for all, since each is traced
        draw, seed = super().sample_functions, as_seed(seed)
        chunks = [draw(x, size, fold_in(seed, -i) if i else seed) for i in range(num_chunks)]
        return np.concatenate(chunks)[:num_samples]

    def functions(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> Tensor:
        """Draws functions from the joint distribution at the points, `O((P + N)^3)` each."""
        with function_draws(num_samples, seed, noise="joint"):
            mean, _ = self.network(inputs[0])
        return tf.broadcast_to(mean, [num_samples, *tf.unstack(tf.shape(mean))[1:]])

    def numbers_per_row(self, num_samples: int) -> int:
        return self._features.inducing_points * self._samples(num_samples)

    def inducing_inputs_in_user_units(self) -> Array:
        """Returns the inducing inputs, NumPy array `[P, ...]` in the user's units."""
        self.check_ready()
        values = tf.reshape(self._features.inducing_inputs, [-1, *self.input_tensors[0].shape[1:]])
        return self.units.input_scalers[0].inverse(values).numpy()

    # Keras ------------------------------------------------------------------------------------

    def get_config(self) -> Config:
        options = ("num_samples", "num_eval_samples", "seed", "alpha")
        return {
            "name": self.name,
            "dtype": self.variable_dtype,
            **{name: getattr(self, name) for name in options},
            "num_outputs": self._given_outputs,
            "standardize": self._standardize_argument,
            "likelihood": keras.saving.serialize_keras_object(self.likelihood),
            "network": keras.saving.serialize_keras_object(self._given_network),
            "start": keras.saving.serialize_keras_object(self.start),
        }

    def get_build_config(self) -> Config | None:
        if self.network is None or not self._is_to_be_built:
            return None
        return {
            "input_shape": list(self.input_tensors[0].shape[1:]),
            "num_outputs": self.num_outputs,
            "inducing_points": self._features.inducing_points,
        }

    def build_from_config(self, config: Config | None) -> None:
        if config:
            self._build_network(
                config["input_shape"], config["num_outputs"], config["inducing_points"]
            )
