"""Sparse implicit processes as a Keras model."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import arguments, arrays, columns, data, streams
from tfp_fnspace.likelihoods import Likelihood
from tfp_fnspace.likelihoods.additive import default_noise
from tfp_fnspace.math.random import normal, split
from tfp_fnspace.methods.sip import adversarial, equations, given_prior, options, parts, prediction
from tfp_fnspace.model import GradientModel, inducing
from tfp_fnspace.model.checks import input_tensor
from tfp_fnspace.model.seeds import part
from tfp_fnspace.processes.base import Process
from tfp_fnspace.typing import (
    Array,
    ArrayLike,
    Config,
    GaussianMoments,
    Network,
    Rows,
    Seed,
    Shape,
    Tensor,
)

#: Arguments that are objects, besides the prior and the posterior.
_OBJECTS = ("likelihood", "divergence", "prior_draws")


@keras.saving.register_keras_serializable(package="tfp_fnspace.sip")
class SIPModel(GradientModel):
    r"""Sparse implicit process: a prior over functions that can only be sampled, fitted to data.

    The values u of the process at M inducing points Z have a posterior from which a network draws,
    given noise. Elsewhere the process is treated as Gaussian given u, with the moments of S prior
    draws (equation 13):

        u ~ q_phi(u),     f(x) | u ~ N(m(x) + w(x)^T (u - m(Z)), k(x)),     y ~ p(y | f).

    The predictive distribution is a mixture over draws of u (equation 14), which may be skewed or
    have several modes. Training maximises

        1/alpha sum_n log E_q p(y_n | f(x_n))^alpha - KL                             (equation 12)

    in phi, Z, the likelihood and the prior. The KL divergence of q(u) and p(u) is estimated by a
    discriminator that is trained at the same time. With `Adversarial(kind="forward")` and `alpha=0`
    this is the evidence lower bound of the sparse process. The default gives neither a bound nor a
    posterior, but fits the predictive distribution to data that the model class does not contain,
    such as bimodal data.

    If the prior's draws are functions of x, the same seed gives the same functions at any points.
    If the prior has only `moments` (a Gaussian process), the draws of one call are coherent, but
    those of two calls belong to different functions.

    `History` has, per row and in the user's units, `log_likelihood`, the first term, and `loss`,
    whose gradient a step uses: the divergence times its weight over N, minus `log_likelihood`. It
    has `kl_estimate`, the discriminator's estimate of the divergence in nats, and
    `discriminator_loss` (2 log 2 if it knows nothing) and `discriminator_accuracy` for the draws of
    a step before it learns from them. `jittered` is the mean number of covariances in a step that
    had no Cholesky factor before more was added to their diagonal. With `prior_penalty` there is
    also `prior_divergence`, its divergence in nats.

    Args:
        prior: `processes.Process` with a draw that is a function of x
            (`draws_are_functions_of_x`) or with `moments`, in model units. Alternatively `"bnn"` or
            `"neural_sampler"`, for `sip.bnn_prior` or `sip.neural_sampler_prior` with the widths of
            the data. Its parameters are learned unless its `trainable` is false.
        inducing_points: M, the maximum number of inducing points. They start at rows of the first
            data; for a dataset, at rows of as many batches as necessary. If there are fewer rows
            than M, there are as many inducing points as rows, with a warning. An array `[M, ...]`
            in the user's units gives their initial positions.
        posterior: `"neural_sampler"`, a network of standard normal noise with two hidden layers of
            50 units, or a Keras model from `[S, K]` of such noise to `[S, M D]`, point by point. It
            is learned unless its `trainable` is false.
        divergence: `sip.Adversarial`: the kind of the divergence, its estimate and its weight.
        prior_draws: `sip.PriorDraws`: the draws from which the moments are computed.
        alpha: Number from 0 to 1. 1 maximises the density of the data, 0 their expected log
            density.
        likelihood: A layer of `tfp_fnspace.likelihoods`. The default is Gaussian noise with a
            learned scale for each column of the targets.
        num_outputs: D. The default is that of a given prior, or else the number that the first
            targets and the likelihood need. It is required for `Categorical`, as the number of
            classes.
        num_samples: S_q, the number of draws of u in a training step.
        num_eval_samples: S_q of all predictions.
        standardize: Whether to standardise inputs and targets by the data of the first `fit`; the
            default is true for rows of rank 1.
        seed: Non-negative integer: the same seed gives the same run.
        **kwargs: `name`, `dtype`.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If an argument is not as described.

    Example:
        >>> model = tfp_fnspace.sip.SIPModel("bnn", inducing_points=20)
        >>> x = np.linspace(-2.0, 2.0, 200)[:, np.newaxis]
        >>> history = model.fit(x, np.sin(3.0 * x), epochs=100, batch_size=50)
        >>> distribution = model.predict_distribution(x)  # a mixture, batch [200], event [1]

    References:
        Rodriguez Santana, Zaldivar & Hernandez-Lobato (2022), "Function-space inference with
        sparse implicit processes", ICML.
    """

    weights_allowed = "positive"
    noise_outputs_allowed = True
    optimizer_names = adversarial.OPTIMIZER_NAMES
    object_names = ("prior", "posterior", *_OBJECTS)

    def __init__(
        self,
        prior: Process | str = "bnn",
        inducing_points: int | ArrayLike = 100,
        *,
        posterior: Network | str = "neural_sampler",
        divergence: options.Adversarial | None = None,
        prior_draws: options.PriorDraws | None = None,
        alpha: float = 0.5,
        likelihood: Likelihood | None = None,
        num_outputs: int | None = None,
        num_samples: int = 100,
        num_eval_samples: int = 100,
        standardize: bool | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(autocast=False, **kwargs)
        self.num_samples = arguments.checked_count("num_samples", num_samples)
        self.num_eval_samples = arguments.checked_count("num_eval_samples", num_eval_samples)
        self._start = None
        if not isinstance(inducing_points, int | np.integer):
            self._start = arrays.as_array(inducing_points, "inducing_points")
            self._start_names = columns.names_to_keep(inducing_points)
            data.check_finite("inducing_points", self._start)
            inducing_points = len(self._start)
        self.inducing_points = arguments.checked_count("inducing_points", inducing_points)
        self.rows_for_shapes = self.rows_to_prepare = self.inducing_points
        self.divergence = options.Adversarial.checked("divergence", divergence)
        self.prior_draws = options.PriorDraws.checked("prior_draws", prior_draws)
        self.num_prior_samples = self.prior_draws.count(self.num_samples, self.inducing_points)
        self.jitter = self.prior_draws.jitter_for(prior)
        self.alpha = arguments.checked_fraction("alpha", alpha)
        parts.check_draws_for_contrast(self.divergence.adaptive_contrast, self.num_samples)
        parts.check_posterior(posterior)
        self._given = given_prior.GivenPrior(prior, num_outputs)
        parts.check_penalty(self.divergence.prior_penalty, prior)
        self._standardize_argument = standardize
        if likelihood is None:
            likelihood = default_noise(self.variable_dtype)
        self.setup(likelihood, True if standardize is None else standardize, seed)
        self.annealing = parts.annealing(self.divergence.kl_annealing, self.variable_dtype)
        self._posterior_argument = posterior
        self.prior = self.posterior = self.log_ratio = self.inducing_inputs = None

    # Sizes ------------------------------------------------------------------------------------

    def create(self, input_shape: Shape, num_columns: int, num_rows: int) -> None:
        count = self.inducing_points
        if self._start is None:
            count = inducing.number_for(num_rows, count)
        num_outputs = self._given.outputs_for(num_columns, self.likelihood)
        self._build(tuple(input_shape), num_outputs, count)

    def _build(self, input_shape, num_outputs, num_inducing):
        """Creates all parts that need sizes."""
        dtype, size = self.variable_dtype, num_inducing * num_outputs
        of_prior, *seeds = parts.seeds_of(self)
        self.prior = self._given.build(input_shape, num_outputs, dtype, of_prior)
        if self._standardize_argument is None:
            self.standardize = len(input_shape) == 1
        self.posterior = parts.build_posterior(self._posterior_argument, size, dtype, seeds[0])
        self.log_ratio = parts.build_log_ratio(self.divergence, size, dtype, seeds[1], self.jitter)
        self.inducing_inputs = self.add_weight(
            name="inducing_inputs", shape=(num_inducing, *input_shape), initializer="zeros"
        )
        self.setup_shapes([input_tensor(input_shape, dtype)], num_outputs)

    @property
    def draws_smooth_functions(self) -> bool:
        """Whether a seed gives the same functions at any points."""
        prior = self._given.prior
        return isinstance(prior, str) or prior.draws_are_functions_of_x

    @property
    def draws_jointly(self) -> bool:
        """Whether the functions of a call need all of its points at once."""
        return not self.draws_smooth_functions

    # Training ---------------------------------------------------------------------------------

    def trained_parts(self) -> dict[str, list[keras.Variable]]:
        return adversarial.trained_parts(self)

    def callbacks_of_fit(
        self, given: list[keras.callbacks.Callback]
    ) -> list[keras.callbacks.Callback]:
        report = adversarial.AdversarialReport(
            self.log_ratio,
            self.divergence_draws,
            "A covariance at the inducing points",
            self._jittered_when_predicting,
        )
        return [report]

    def _jittered_when_predicting(self):
        """Returns how many covariances of predictions need more on their diagonal than `jitter`."""
        z = tf.convert_to_tensor(self.inducing_inputs.value)
        return int(prediction.predictive_distribution(self, z[:1])[0].num_jittered)

    def adapt(
        self, x: Rows, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> None:
        """Sets the standardisation from data and, for arrays, the initial inducing points."""
        with self.turns.training:
            super().adapt(x, y, sample_weight)
            if self._start is not None or not streams.is_stream(x):
                self._place([] if streams.is_stream(x) else self.checks.inputs(x))

    def prepare(self, inputs: list[Array], targets: Array, batches: Iterable[Any]) -> None:
        self._place(inputs)

    def _place(self, inputs):
        """Sets the initial inducing points, which are given or rows of the inputs."""
        if self._start is None:
            count = self.inducing_inputs.shape[0]
            start = inputs[0][inducing.starting_rows(inputs[0], count, self.counters.seeds)]
        else:
            known = self.units.input_scalers[0].column_names
            columns.check_names(self._start_names, known, "inducing_points")
            (start,) = self.checks.inputs(self._start, "inducing_points")
        self.inducing_inputs.assign(self.units.scaled([tf.constant(start)])[0])

    def objective(
        self,
        inputs: list[Tensor],
        targets: Tensor,
        num_rows: Tensor,
        seed: Seed,
        row_weights: Tensor | None = None,
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Computes the losses and the entries of `History`, see the class."""
        seeds = split(seed, 4)
        of_q, of_p = self._divergence_counts()
        u = self.posterior_draws(of_q, seeds[0])
        distribution, at_z = self.conditional(inputs[0], seeds[1])
        if of_p > self.num_prior_samples:
            z = tf.convert_to_tensor(self.inducing_inputs.value)
            at_z = given_prior.draws(self, z, of_p, seeds[1])
        mixture = equations.mixture(distribution, u[: self.num_samples])
        log_likelihood = equations.data_energy(
            self.likelihood, mixture, targets, self.alpha, seeds[2], row_weights=row_weights
        )
        divergences = self.log_ratio(_flat(u), _flat(at_z), seeds[3])
        kl = divergences.forward
        if self.divergence.kind == "symmetric":
            kl = equations.symmetrized(kl, divergences.reverse)
        loss = equations.loss(log_likelihood, kl, num_rows, self.annealed())
        history = {
            "log_likelihood": log_likelihood,
            "kl_estimate": kl,
            "jittered": tf.cast(distribution.num_jittered + divergences.num_jittered, loss.dtype),
        }
        if self.divergence.prior_penalty:
            of_weights = self.prior.weight_divergence(inputs[0], part(seed, "prior weights"))
            history["prior_divergence"] = tf.cast(of_weights, loss.dtype)
            loss += self.divergence.prior_penalty * history["prior_divergence"] / num_rows
        return adversarial.objective(loss, divergences, history)

    def divergence_draws(self, seed: Seed) -> tuple[Tensor, Tensor]:
        """Draws u from q and from p, `[S, M D]`, as many as a step uses for the divergence."""
        seeds, (of_q, of_p) = split(seed, 2), self._divergence_counts()
        u = self.posterior_draws(of_q, seeds[0])
        z = tf.convert_to_tensor(self.inducing_inputs.value)
        return _flat(u), _flat(given_prior.draws(self, z, of_p, seeds[1]))

    def _divergence_counts(self):
        """Returns the numbers of draws of q and of p for the divergence."""
        needed = 0
        if self.divergence.adaptive_contrast == "full":
            needed = 2 * self.inducing_inputs.shape[0] * self.num_outputs + 3
        return max(self.num_samples, needed), max(self.num_prior_samples, needed)

    # Parts ------------------------------------------------------------------------------------

    def posterior_draws(self, num_samples: int, seed: Seed, training: bool = True) -> Tensor:
        """Draws u, `[S, M, D]`."""
        width = self.posterior.input_shape[-1]
        noise = normal([num_samples, width], seed, self.variable_dtype)
        values = tf.cast(self.posterior(noise, training=training), self.variable_dtype)
        return tf.reshape(values, [num_samples, -1, self.num_outputs])

    def draw_prior(self, x: Tensor, num_samples: int, seed: Seed) -> list[Tensor]:
        """Draws the prior at the inducing points, `[S, M, D]`, and at points, `[S, N, D]`."""
        z = tf.convert_to_tensor(self.inducing_inputs.value)
        points = tf.concat([z, tf.cast(x, z.dtype)], axis=0)
        draws = given_prior.draws(self, points, num_samples, seed)
        return tf.split(draws, [z.shape[0], -1], axis=1)

    def conditional(self, x: Tensor, seed: Seed) -> tuple[equations.Conditional, Tensor]:
        """Returns the distribution at points given u, and prior draws at the inducing points."""
        z, at_z = tf.convert_to_tensor(self.inducing_inputs.value), None
        if self.prior.has_moments:
            moments = given_prior.exact_moments(self.prior, tf.cast(x, z.dtype), z)
        else:
            of_moments = self.counters.seeds.stream("prior") if self.prior_draws.fixed else seed
            at_z, at_x = self.draw_prior(x, self.num_prior_samples, of_moments)
            moments = equations.empirical_moments(at_x, at_z)
        if at_z is None or self.prior_draws.fixed:
            at_z = given_prior.draws(self, z, self.num_prior_samples, seed)
        return equations.conditional(moments, self.jitter), at_z

    # Prediction -------------------------------------------------------------------------------

    def call(self, inputs: Tensor | list[Tensor]) -> Tensor:
        """Draws f in model units, `[S, N, D]`, for inputs in the user's units."""
        self.check_ready()
        seed = self.counters.seeds.stream("predict")
        return self.functions(self.units.scaled(inputs), self.num_eval_samples, seed)

    def moments(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> GaussianMoments:
        return prediction.moments(self, inputs[0], num_samples, seed)

    def functions(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> Tensor:
        return prediction.functions(self, inputs[0], num_samples, seed)

    def numbers_per_row(self, num_samples: int) -> int:
        return prediction.numbers_per_row(self, super().numbers_per_row(num_samples))

    def inducing_inputs_in_user_units(self) -> Array:
        """Returns the inducing inputs, NumPy array `[M, ...]` in the user's units."""
        self.check_ready()
        return self.units.input_scalers[0].inverse(self.inducing_inputs.value).numpy()

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
        given = {"prior": self._given.prior, "posterior": self._posterior_argument}
        names = ("inducing_points", "alpha", "num_samples", "num_eval_samples", "seed")
        config = {
            "name": self.name,
            "dtype": self.variable_dtype,
            **{name: getattr(self, name) for name in names},
            **{name: v if isinstance(v, str) else serialize(v) for name, v in given.items()},
            **{name: serialize(getattr(self, name)) for name in _OBJECTS},
            "standardize": self._standardize_argument,
            "num_outputs": self._given.num_outputs,
        }
        if self._start is not None:
            config["inducing_points"] = self._start.tolist()
        return config

    def get_build_config(self) -> Config | None:
        if self.prior is None:
            return None
        return {
            "input_shape": list(self.input_tensors[0].shape[1:]),
            "num_outputs": self.num_outputs,
            "inducing_points": self.inducing_inputs.shape[0],
        }

    def build_from_config(self, config: Config | None) -> None:
        if config:
            self._build(
                tuple(config["input_shape"]), config["num_outputs"], config["inducing_points"]
            )


def _flat(draws):
    """Reshapes `[S, M, D]` to `[S, M D]`."""
    return tf.reshape(draws, [tf.shape(draws)[0], draws.shape[1] * draws.shape[2]])
