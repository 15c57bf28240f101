"""Variational implicit processes, Gaussian processes with the moments of prior draws."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import arguments
from tfp_fnspace.likelihoods import Likelihood
from tfp_fnspace.likelihoods.additive import default_noise
from tfp_fnspace.math.random import normal
from tfp_fnspace.methods.sip import equations, given_prior, parts
from tfp_fnspace.model import GradientModel
from tfp_fnspace.model.checks import input_tensor
from tfp_fnspace.processes.base import Process
from tfp_fnspace.typing import Array, Config, GaussianMoments, Rows, Seed, Shape, Tensor

#: The softplus of this number is 1.
_RAW_ONE = float(np.log(np.expm1(1.0)))


@keras.saving.register_keras_serializable(package="tfp_fnspace.sip")
class VIPModel(GradientModel):
    r"""Variational implicit process: a process that can only be sampled, treated as Gaussian.

    A Gaussian process has the mean and the covariance of S draws f_s of the prior (equation 6). It
    is a linear model with S weights a for each output,

        f(x) = m(x) + S^-1/2 sum_s a_s (f_s(x) - m(x)),    a ~ N(0, I),    m = 1/S sum_s f_s,

    with a Gaussian posterior q(a) = N(mu, L L^T). Training maximises

        1/alpha sum_n log E_q p(y_n | f(x_n))^alpha - KL(q(a) || N(0, I))

    in mu, L, the likelihood and the parameters of the prior. Both terms have a closed form if the
    noise is Gaussian; otherwise the first is estimated from draws of f. At `alpha=0`, its limit,
    this is the evidence lower bound of the linear model. The predictive distribution is Gaussian if
    the noise is.

    `History` has, per row and in the user's units, `log_likelihood`, the first term of the
    objective, `kl`, the second term, and `loss`, the second minus the first. At `alpha=0` it also
    has `elbo`, -loss.

    The noise of the S draws is the same in every step and in prediction, so that a_s belongs to one
    function. The regularisation that the authors of the method add on the small data sets is not
    included.

    Args:
        prior: `processes.Process` with a draw that is a function of x
            (`draws_are_functions_of_x`), in model units. Alternatively `"bnn"` or
            `"neural_sampler"`, for `sip.bnn_prior` or `sip.neural_sampler_prior` with the widths of
            the data.
        num_prior_samples: S, at least 2. The rank of the covariance is S - 1.
        alpha: Number from 0 to 1.
        likelihood: A layer of `tfp_fnspace.likelihoods`. The default is Gaussian noise with a
            learned scale for each column of the targets.
        num_outputs: D. The default is that of a given prior, or else the number that the first
            targets and the likelihood need. It is required for `Categorical`, as the number of
            classes.
        num_samples: Number of draws of f at a point in a training step, if E p(y | f)^alpha has no
            closed form (for all but Gaussian noise). Few draws have the effect of a smaller alpha.
        standardize: Whether to standardise inputs and targets by the data of the first `fit`; the
            default is true for rows of rank 1.
        seed: Non-negative integer: the same seed gives the same run.
        **kwargs: `name`, `dtype`.

    Attributes:
        weight_mean: mu, `[D, S]`.
        weight_cholesky: L, `[D, S, S]`.

    Raises:
        TypeError: If `prior` is not a process, or `likelihood` not a likelihood.
        ValueError: If an argument is not as described.

    Example:
        >>> model = VIPModel("bnn")
        >>> history = model.fit(x, y, epochs=100)
        >>> distribution = model.predict_distribution(x)

    References:
        Ma, Li & Hernandez-Lobato (2019), "Variational implicit processes", ICML.
    """

    weights_allowed = "positive"
    noise_outputs_allowed = True
    object_names = ("likelihood", "prior")

    #: The posterior of f is one Gaussian.
    num_eval_samples = 1
    num_joint_functions = 200

    def __init__(
        self,
        prior: Process | str = "bnn",
        *,
        num_prior_samples: int = 100,
        alpha: float = 0.5,
        likelihood: Likelihood | None = None,
        num_outputs: int | None = None,
        num_samples: int = 20,
        standardize: bool | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(autocast=False, **kwargs)
        self.num_prior_samples = arguments.checked_count("num_prior_samples", num_prior_samples, 2)
        self.num_samples = arguments.checked_count("num_samples", num_samples)
        self.alpha = arguments.checked_fraction("alpha", alpha)
        self._given = given_prior.GivenPrior(prior, num_outputs, needs_functions=True)
        self.prior = None
        self._standardize_argument = standardize
        if likelihood is None:
            likelihood = default_noise(self.variable_dtype)
        self.setup(likelihood, True if standardize is None else standardize, seed)

    # Sizes ------------------------------------------------------------------------------------

    def create(self, input_shape: Shape, num_columns: int, num_rows: int) -> None:
        self._build(tuple(input_shape), self._given.outputs_for(num_columns, self.likelihood))

    def _build(self, input_shape, num_outputs):
        """Creates all parts that need sizes."""
        seed, *_ = parts.seeds_of(self)
        self.prior = self._given.build(input_shape, num_outputs, self.variable_dtype, seed)
        if self._standardize_argument is None:
            self.standardize = len(input_shape) == 1
        size = self.num_prior_samples
        self.weight_mean = self.add_weight(
            name="weight_mean", shape=(num_outputs, size), initializer="zeros"
        )
        self._raw_cholesky = self.add_weight(
            name="raw_cholesky", shape=(num_outputs, size, size), initializer="zeros"
        )
        self.setup_shapes([input_tensor(input_shape, self.variable_dtype)], num_outputs)

    @property
    def weight_cholesky(self) -> Tensor:
        """L, tensor `[D, S, S]`."""
        raw = self._raw_cholesky.value
        return tf.linalg.set_diag(
            tf.linalg.band_part(raw, -1, 0), tf.nn.softplus(tf.linalg.diag_part(raw) + _RAW_ONE)
        )

    # Training ---------------------------------------------------------------------------------

    def objective(
        self,
        inputs: list[Tensor],
        targets: Tensor,
        num_rows: Tensor,
        seed: Seed,
        row_weights: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Computes the loss and the entries of `History`, see the class."""
        moments = self._moments(inputs[0])
        parts = self.likelihood, moments, targets, self.alpha, seed
        log_likelihood = equations.data_energy(
            *parts, num_draws=self.num_samples, row_weights=row_weights
        )
        divergence = equations.weight_divergence(self.weight_mean.value, self.weight_cholesky)
        kl = divergence / num_rows
        history = {"log_likelihood": log_likelihood, "kl": kl}
        if self.alpha == 0.0:
            history["elbo"] = log_likelihood - kl
        return equations.loss(log_likelihood, divergence, num_rows), history

    # Prediction -------------------------------------------------------------------------------

    def _prior_draws(self, x):
        """Draws the f_s, `[S, N, D]`, which are the same functions in every call."""
        seed = self.counters.seeds.stream("prior")
        return given_prior.draws(self, x, self.num_prior_samples, seed)

    def _moments(self, x):
        """Returns `GaussianMoments` of f in model units, tensors `[1, N, D]`."""
        draws = self._prior_draws(x)
        return equations.linear_model_moments(draws, self.weight_mean.value, self.weight_cholesky)

    def call(self, inputs: Tensor | list[Tensor]) -> GaussianMoments:
        """Returns `GaussianMoments` of f in model units, `[N, D]`, for inputs in user's units."""
        self.check_ready()
        mean, variance = self._moments(self.units.scaled(inputs)[0])
        return GaussianMoments(mean[0], variance[0])

    def moments(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> GaussianMoments:
        return self._moments(inputs[0])

    def functions(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> Tensor:
        """Draws functions by draws of a; the same seed gives the same functions at any points."""
        mean, cholesky = self.weight_mean.value, self.weight_cholesky
        noise = normal([num_samples, *mean.shape], seed, mean.dtype)
        weights = mean + tf.linalg.matvec(cholesky, noise)
        return equations.gaussian_process_draws(self._prior_draws(inputs[0]), weights)

    def numbers_per_row(self, num_samples: int) -> int:
        return self.num_prior_samples * given_prior.PRIOR_WIDTH + super().numbers_per_row(
            num_samples
        )

    def sample_prior_functions(self, x: Rows, num_samples: int, seed: Seed = (0, 0)) -> Array:
        """Draws functions from the learned prior.

        Args:
            x: As for `predict`, arrays only.
            num_samples: S, a positive integer.
            seed: Integer or two integers.

        Returns:
            NumPy array `[S, N, D]` in the user's units.
        """
        return given_prior.sample_functions(self, x, num_samples, seed)

    # Keras ------------------------------------------------------------------------------------

    def get_config(self) -> Config:
        serialize = keras.saving.serialize_keras_object
        prior = self._given.prior
        return {
            "name": self.name,
            "dtype": self.variable_dtype,
            "prior": prior if isinstance(prior, str) else serialize(prior),
            "num_prior_samples": self.num_prior_samples,
            "num_samples": self.num_samples,
            "alpha": self.alpha,
            "likelihood": serialize(self.likelihood),
            "num_outputs": self._given.num_outputs,
            "standardize": self._standardize_argument,
            "seed": self.seed,
        }

    def get_build_config(self) -> Config | None:
        if self.prior is None:
            return None
        shape = list(self.input_tensors[0].shape[1:])
        return {"input_shape": shape, "num_outputs": self.num_outputs}

    def build_from_config(self, config: Config | None) -> None:
        if config:
            self._build(tuple(config["input_shape"]), config["num_outputs"])
