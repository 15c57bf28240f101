"""Functional variational Bayesian neural networks as a Keras model."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary.streams import Batch
from tfp_fnspace.callbacks import JitterReport
from tfp_fnspace.layers import networks
from tfp_fnspace.layers.draws import function_draws
from tfp_fnspace.layers.linearized import LinearizedNetwork
from tfp_fnspace.likelihoods.base import Likelihood
from tfp_fnspace.math.random import split
from tfp_fnspace.math.row_weights import weighted
from tfp_fnspace.methods.fbnn import closed_form, equations
from tfp_fnspace.methods.fbnn.adversarial import Adversarial
from tfp_fnspace.methods.fbnn.divergences import (
    ClosedForm,
    Divergence,
    Linearized,
    Regularized,
    Stein,
    checked_divergence,
)
from tfp_fnspace.methods.fbnn.functional_kl import (
    at_some_points,
    gaussian_kl,
    kl_estimate,
    kl_surrogate,
    most_points,
)
from tfp_fnspace.methods.fbnn.measurement import Box, MeasurementSet
from tfp_fnspace.methods.fbnn.variational_model import VariationalModel
from tfp_fnspace.model.seeds import part
from tfp_fnspace.processes.base import Process
from tfp_fnspace.typing import Array, Config, GaussianMoments, Network, Seed, Tensor

#: Arguments that are objects.
_OBJECTS = ("prior", "measurement", "divergence")

#: What `JitterReport` says of.
_JITTERED = "A covariance of the network or of the prior at the measurement points"

WEIGHTS = ("batch", "data")


@keras.saving.register_keras_serializable(package="tfp_fnspace.fbnn")
class FBNNModel(VariationalModel):
    r"""A network with a prior on functions, by variational inference in function space.

    With D_s a batch of B of the N rows and M drawn measurement points, training maximises
    (Algorithm 1)

        1/B sum_{D_s} E_q log p(y | f(x)) - lambda KL[q(f^{D_s}, f^M) || p(f^{D_s}, f^M)].

    - `kl_weight="batch"`, lambda = 1/B, is the paper's choice. B times the objective is the
      functional evidence lower bound of the rows of the batch.
    - With `kl_weight="data"`, lambda = 1/N, N times the mean of the objective over batches is no
      less than the bound of all rows, since the divergence at some points is at most that at all
      points (Theorem 1). The two are equal if the batch is all rows.
    - A number is lambda itself.

    `divergence` says how the divergence and its gradient are computed: `Stein` as in the paper,
    `Regularized`, `Linearized`, or `ClosedForm` for networks whose functions are Gaussian.

    Args:
        network: As for `VariationalModel`; the priors of its layers have no effect.
        prior: `processes.Process`, in model units, with as many outputs as the network.
        likelihood: A layer of `tfp_fnspace.likelihoods`. The default is Gaussian noise with a
            learned scale for each column of the targets.
        measurement: `MeasurementSet`, in model units. The default is 5 uniform points in a box that
            exceeds the data by half their width on each side (`Box(5)`). A set that has not seen
            data yet is adapted to the data of the first `fit`, or to the first batch of a dataset.
        divergence: `fbnn.Stein()` by default, `fbnn.Regularized()`, `fbnn.Linearized()` or
            `fbnn.ClosedForm()`.
        kl_weight: `"batch"`, `"data"` or a non-negative number lambda.
        kl_annealing_steps: Number of steps over which lambda rises linearly to its value.
        fit_prior: Whether the prior is fitted to the data of the first `fit` by its marginal
            likelihood (`prior.fit`) before training.
        num_samples: S, the number of functions in a training step, at least 4 unless the divergence
            is linearised; not used in closed form.
        num_eval_samples: S of all predictions.
        standardize: As for `VariationalModel`.
        seed: As for `VariationalModel`.
        **kwargs: `name`, `dtype`.

    Raises:
        TypeError: If `prior`, `measurement` or `divergence` is not one.
        ValueError: If an argument is not as described.

    Example:
        >>> prior = processes.GaussianProcess(tfp.math.psd_kernels.ExponentiatedQuadratic())
        >>> inputs = keras.Input((1,))
        >>> hidden = layers.VariationalDense(50, activation="tanh")(inputs)
        >>> model = FBNNModel((inputs, layers.VariationalDense(1)(hidden)), prior, fit_prior=True)
        >>> history = model.fit(x, y, epochs=500, batch_size=20)
        >>> f = model.sample_functions(x, 10)  # [10, N, 1]

    References:
        Sun, Zhang, Shi and Grosse (2019), "Functional variational Bayesian neural networks", ICLR.
        Burt et al. (2020), "Understanding variational inference in function space" (cases in which
        the divergence is infinite).
        Cinquin and Bamler (2024), "Regularized KL-divergence for well-defined function-space
        variational inference in Bayesian neural networks".
    """

    object_names = ("likelihood", "network", *_OBJECTS)

    #: The divergence is that of the functions at all rows of a batch jointly.
    needs_all_rows = True

    prior: Any  # a `Process`, with what its kind has beside that

    def __init__(
        self,
        network: Network | Sequence[Any],
        prior: Process,
        *,
        likelihood: Likelihood | None = None,
        measurement: MeasurementSet | None = None,
        divergence: Divergence | None = None,
        kl_weight: str | float = "batch",
        kl_annealing_steps: int = 0,
        fit_prior: bool = False,
        num_samples: int = 100,
        num_eval_samples: int = 100,
        standardize: bool | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        named = isinstance(kl_weight, str)
        if named and kl_weight not in WEIGHTS:
            raise ValueError(
                f"`kl_weight` must be one of {WEIGHTS} or a number. "
                f"Received: kl_weight={kl_weight!r}"
            )
        super().__init__(
            network,
            likelihood=likelihood,
            kl_weight=1.0 if named else kl_weight,
            kl_annealing_steps=kl_annealing_steps,
            num_samples=num_samples,
            num_eval_samples=num_eval_samples,
            standardize=standardize,
            seed=seed,
            **kwargs,
        )
        self._weight_argument = kl_weight if named else self.kl_weight
        self.divergence = checked_divergence(divergence)
        if num_samples < 4 and isinstance(self.divergence, Stein | Regularized):
            raise ValueError(
                "`num_samples` must be at least 4: scores and moments are estimated from them. "
                f"Received: num_samples={num_samples}"
            )
        self.fit_prior = bool(fit_prior)
        self._kl_seen = self.add_weight(
            name="kl_seen", shape=(), initializer="zeros", trainable=False, aggregation="mean"
        )
        self._setup_prior(prior)
        self._output = closed_form.gaussian_output(self)
        self._linear = None
        if isinstance(self.divergence, Linearized):
            closed_form.refuse_other_priors(self)
            self._linear = LinearizedNetwork(self.network)
        networks.refuse_acting_in_training(self.network, type(self).__name__)
        self._setup_measurement(Box(5) if measurement is None else measurement)

    def _setup_prior(self, prior):
        if not isinstance(prior, Process):
            raise TypeError(
                f"`prior` must be one of `tfp_fnspace.processes`. Received: prior={prior!r}"
            )
        if prior.num_outputs != self.num_outputs:
            raise ValueError(
                f"`prior` must have {self.num_outputs} outputs, as the network. "
                f"Received: prior.num_outputs={prior.num_outputs}"
            )
        if self.divergence.learn_prior and not prior.has_density:
            raise ValueError(
                "`learn_prior` needs a prior with a density. "
                f"Received: prior={type(prior).__name__}"
            )
        if self.fit_prior and not hasattr(prior, "fit"):
            raise ValueError(
                "`fit_prior` needs a prior with `fit`, a Gaussian or Student-t process. "
                f"Received: prior={type(prior).__name__}"
            )
        if self.fit_prior and self.likelihood.has_noise_outputs:
            raise ValueError(
                "`fit_prior` needs a likelihood without outputs that describe the noise, for which "
                f"there are no targets. Received: likelihood={type(self.likelihood).__name__}"
            )
        if not prior.built:
            prior.build((None, *self._row_shape))
        self.prior = prior
        self.fix([] if self.divergence.learn_prior else [prior])

    def _setup_measurement(self, measurement):
        if not isinstance(measurement, MeasurementSet):
            raise TypeError(
                f"`measurement` must be a `MeasurementSet`. Received: measurement={measurement!r}"
            )
        if len(self.network.inputs) != 1:
            raise ValueError(
                "`network` must have one input: points are drawn for it. "
                f"Received: {len(self.network.inputs)} inputs"
            )
        if not measurement.built:
            measurement.build((None, int(np.prod(self._row_shape))))
        self.measurement = measurement

    @property
    def _row_shape(self):
        return tuple(self.network.inputs[0].shape[1:])

    # Training ---------------------------------------------------------------------------------

    def prepare(
        self,
        inputs: list[Array],
        targets: Array,
        batches: Iterable[Batch],
    ) -> None:
        """Adapts the measurement set and fits the prior and the last layer, if required."""
        (x,) = self.units.scaled([tf.constant(values) for values in inputs])
        if not getattr(self.measurement, "ready", True):
            self.measurement.adapt(tf.reshape(x, [len(targets), -1]).numpy())
        if isinstance(self.measurement, Adversarial):
            self.measurement.restart(self.counters.seeds.stream("prior"))
        if self.fit_prior:
            y = self.units.target_scaler(tf.constant(targets))
            self.prior.fit(x, self.likelihood.start_values(y))
        if isinstance(self.divergence, ClosedForm) and self.divergence.fit_output:
            closed_form.fit_output(self._output, self.likelihood, self.units, batches)

    def points(self, x: Tensor, seed: Seed) -> Tensor:
        """Returns the rows of a batch and measurement points, in model units.

        Args:
            x: `[B, ...]`.
            seed: int32 tensor `[2]`.

        Returns:
            Tensor `[B + M, ...]`.
        """
        flat = tf.reshape(x, [tf.shape(x)[0], int(np.prod(self._row_shape))])
        points = self.measurement.points(flat, seed)
        return tf.reshape(points, [-1, *self._row_shape])

    def objective(
        self,
        inputs: list[Tensor],
        targets: Tensor,
        num_rows: Tensor,
        seed: Seed,
        row_weights: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Computes the loss and the entries of `History`, see `GradientModel.objective`.

        Returns:
            The loss per row, and `elbo`, `log_likelihood` (expected) and `kl_estimate`, with
            `elbo = log_likelihood - lambda kl_estimate`. The value of the loss is `-elbo` when
            lambda has its full weight, and its gradient is that of Algorithm 1. The function
            `kl_estimate` computes the estimate, which is not a bound.
        """
        seeds = split(seed, 4)
        count = tf.shape(targets)[0]
        if isinstance(self.measurement, Adversarial):
            self.measurement.ascend(
                lambda places: self._divergence_with(inputs[0], places, seeds[0], seeds[3])
            )
        points = self.points(inputs[0], seeds[2])
        moments, divergence_of = self._distribution_at(points, seeds[0])
        moments = GaussianMoments(*(None if v is None else v[:, :count] for v in moments))
        log_likelihood = self.likelihood.expected_log_prob(moments, targets, seeds[1])
        log_likelihood = tf.reduce_mean(weighted(log_likelihood, row_weights))
        estimate, surrogate, parts = divergence_of(seeds[3])
        rows = {"batch": tf.cast(count, estimate.dtype), "data": num_rows}
        if row_weights is not None:
            rows["batch"] *= tf.cast(self.counters.mean_weight.value, estimate.dtype)
        weight = 1.0 / rows[self._weight_argument] if self._is_named else self.kl_weight
        elbo = equations.elbo(log_likelihood, estimate, weight)
        divergence = equations.with_value(surrogate, estimate)
        loss = -equations.elbo(log_likelihood, divergence, weight * self.annealed())
        parts = {"log_likelihood": log_likelihood, "kl_estimate": estimate, **parts}
        return loss, {"elbo": elbo, **parts}

    @property
    def _is_gaussian(self):
        """Whether the divergence is one of normal distributions, in closed form."""
        return self._output is not None or self._linear is not None

    @property
    def _is_named(self):
        return isinstance(self._weight_argument, str)

    def _distribution_at(self, points, seed):
        """Returns the moments of f, `[S, N, D]`, and a function for the divergence there.

        The function takes a seed. It returns the divergence, a scalar with its gradient, and parts
        for `History`.
        """
        joint = None
        if self._output is None:
            values = self._functions(points, seed)
            moments = GaussianMoments(values, None)
            if self._linear is None:
                return moments, lambda s: (*self._divergence(values, points, s), {})
        else:
            joint = self._output.joint(points)
            moments = closed_form.moments_of(joint, self.variable_dtype)

        def divergence(_):
            kl, num_jittered = self._gaussian_divergence_at(points, joint)
            return kl, kl, {"jittered": tf.cast(num_jittered, kl.dtype)}

        return moments, divergence

    def _gaussian_divergence_at(self, points, joint=None):
        """Returns the `GaussianDivergence` of Gaussian functions, or of linearised ones."""
        noise = self.divergence.injected_noise
        if self._linear is None:
            joint = self._output.joint(points) if joint is None else joint
            mean, covariance = joint.mean, joint.covariance()
        else:
            mean, covariance = self._linear.moments(lambda x: self._values([x]), points)
            noise = equations.regularized_noise(noise, mean[tf.newaxis])
        mean = tf.cast(mean, self.variable_dtype)
        return gaussian_kl(mean, covariance, points, self.prior, noise)

    def _functions(self, points, seed):
        with function_draws(self.num_samples, seed, noise="joint"):
            return self._values([points])

    def _divergence_with(self, x, places, *seeds):
        """Returns the objective's value of the divergence at rows and places `[M, I]`."""
        places = tf.reshape(tf.cast(places, x.dtype), [-1, *self._row_shape])
        points = tf.concat([x, places], axis=0)
        if self._is_gaussian:
            return self._gaussian_divergence_at(points).kl
        return self._estimate(self._functions(points, seeds[0]), points, seeds[1])

    def _divergence(self, values, points, seed):
        """Returns the estimate of the divergence, and a scalar with its gradient."""
        how = self.divergence
        if not isinstance(how, Stein):
            estimate = self._estimate(values, points, seed)
            return estimate, estimate
        estimate = self._monitored(tf.stop_gradient(values), points, seed, how.monitor_steps)
        surrogate = kl_surrogate(
            values,
            points,
            self.prior,
            seed,
            how.injected_noise,
            how.share,
            how.bandwidth,
            how.whiten,
            learn_prior=how.learn_prior,
        )
        return estimate, surrogate

    def _estimate(self, values, points, seed):
        """Returns `kl_estimate` at as many random points as there are enough functions for."""
        most = most_points(self.num_samples)
        values, points = at_some_points(values, points, most, part(seed, "random points"))
        noise = self.divergence.injected_noise
        if isinstance(self.divergence, Regularized):
            noise = equations.regularized_noise(noise, values)
        return kl_estimate(values, points, self.prior, seed, noise)

    def _monitored(self, values, points, seed, monitor_steps):
        """Returns the estimate of this step if one is due, else the last one."""
        if monitor_steps == 1:
            return self._estimate(values, points, seed)
        is_due = tf.equal(self.counters.steps.value % monitor_steps, 0)
        kept = tf.convert_to_tensor(self._kl_seen.value)
        kl = tf.cond(
            is_due,
            lambda: self._estimate(values, points, seed),
            lambda: tf.cast(kept, values.dtype),
        )
        self._kl_seen.assign(kl)
        return kl

    def callbacks_of_fit(
        self, given: list[keras.callbacks.Callback]
    ) -> list[keras.callbacks.Callback]:
        return [JitterReport(_JITTERED)] if self._is_gaussian else []

    # Prediction -------------------------------------------------------------------------------

    def moments(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> GaussianMoments:
        if self._output is None:
            return super().moments(inputs, num_samples, seed)
        return closed_form.moments_of(self._output.joint(*inputs), self.variable_dtype)

    def numbers_per_row(self, num_samples: int) -> int:
        size = 0 if self._output is None else self._output.layer.posterior.size * self.num_outputs
        return max(super().numbers_per_row(num_samples), num_samples * size)

    # Keras ------------------------------------------------------------------------------------

    def get_config(self) -> Config:
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "fit_prior": self.fit_prior,
            "kl_weight": self._weight_argument,
            **{name: serialize(getattr(self, name)) for name in _OBJECTS},
        }
