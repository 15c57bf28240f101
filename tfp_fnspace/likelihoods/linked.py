"""Targets whose mean is a function of f: the base of counts, positive and other targets."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.boundary import data
from tfp_fnspace.boundary.arguments import checked_positive
from tfp_fnspace.layers.scaler import RunningMoments, Standardizer
from tfp_fnspace.likelihoods.mixtures import MixtureLikelihood, at_nodes
from tfp_fnspace.math.expectations import normal_expectation
from tfp_fnspace.typing import (
    Array,
    ArrayLike,
    Config,
    Distribution,
    GaussianMoments,
    Seed,
    Shape,
    Tensor,
)

tfd = tfp.distributions

#: Nodes of the integrals over f in predictions. With them E exp(2 f) is within 1e-5 if f has a
#: standard deviation of 3.
_NUM_NODES = 40

#: The largest magnitude of a target and the smallest of a positive one, which float32 can hold, and
#: the largest count.
LARGEST_TARGET, SMALLEST_TARGET, LARGEST_COUNT = 1e30, 1e-30, 1e9


class LinkedLikelihood(MixtureLikelihood):
    r"""A likelihood of independent targets that is not additive noise about f.

    Targets stay in the user's units. In these units f is on the scale of a link, the logarithm of
    the mean of a count say. A model that standardises has f in other units,

        f = offset + spread f_model,

    where the first data give the offset, and the spread is 1 unless a subclass has another. So
    f_model = 0 is a good constant.

    A subclass has `_observed(values)`, the distribution of a target given f, entry by entry, with
    `mean` and `variance`; `_link(mean)`; and `check_targets`. It may have one positive parameter
    for each column, which is trained, `parameter_name` with `_parameter_of(mean, variance)`, and
    `_expected`, a closed form.

    Args:
        parameter: Start of the parameter, a positive number. `None` is what the first data suggest.
        trainable: Whether the parameter is trained.
        **kwargs: `name`, `dtype`.

    Attributes:
        function_scaler: `Standardizer` with the offset and the spread, once a model knows the
            number of outputs.
    """

    has_link = True

    #: Name of the parameter, `None` if there is none.
    parameter_name: str | None = None

    def __init__(self, parameter: float | None = None, trainable: bool = True, **kwargs: Any):
        super().__init__(autocast=False, trainable=bool(trainable), **kwargs)
        if parameter is not None:
            parameter = checked_positive(str(self.parameter_name), parameter)
        self._given_parameter = parameter

    def build(self, input_shape: Shape) -> None:
        """Creates the offset and the parameter for targets `[N, D]`."""
        self.function_scaler = Standardizer(dtype=self.variable_dtype)
        self.function_scaler.build(input_shape)
        if self.parameter_name is not None:
            self._log_parameter = self.add_weight(
                name=f"log_{self.parameter_name}",
                shape=(input_shape[-1],),
                initializer=keras.initializers.Constant(np.log(self._given_parameter or 1.0)),
                trainable=self.trainable,
                autocast=False,
            )

    def _variable(self) -> keras.Variable:
        """Returns the weight with the logarithm of the parameter."""
        if not self.built:
            raise ValueError(
                "The parameters of a likelihood exist once a model knows the number of outputs. "
                f"Received: {type(self).__name__} without a model"
            )
        return self._log_parameter

    def _parameter(self, dtype: tf.DType | str | None = None) -> Tensor:
        """Returns the parameter of each column, `[D]`."""
        value = tf.exp(self._variable().value)
        return value if dtype is None else tf.cast(value, dtype)

    # The first data ---------------------------------------------------------------------------

    def statistic(self, targets: Array) -> Array:
        """Returns the function of the targets whose mean and variance give the start."""
        return targets

    def adapt_to(self, moments: RunningMoments) -> None:
        """Sets the offset and the spread of f, and the parameter unless it is given.

        Args:
            moments: `RunningMoments` of the `statistic` of the targets, in the user's units.

        Raises:
            ValueError: If nothing is known of a column.
        """
        empty = np.flatnonzero(moments.count == 0)
        if len(empty):
            raise ValueError(
                "Standardisation needs at least one observed value in every column. "
                f"Received: columns without one={empty.tolist()}"
            )
        offset, spread = self._units_of(moments)
        self.function_scaler.mean.assign(offset)
        self.function_scaler.stddev.assign(spread)
        self.function_scaler.adapted.assign(1)
        if self.parameter_name is not None and self._given_parameter is None:
            variance = moments.sum_of_squares / moments.count
            found = self._parameter_of(self._possible(moments), variance)
            self._log_parameter.assign(np.log(np.clip(found, 0.01, 1e3)))

    def _units_of(self, moments: RunningMoments) -> tuple[Array, Array]:
        """Returns the offset and the spread of f, arrays `[D]`."""
        offset = self._link(tf.constant(self._possible(moments))).numpy()
        return offset, np.ones_like(offset)

    def _possible(self, moments: RunningMoments) -> Array:
        """Returns a mean `[D]` that the link can take."""
        return moments.mean

    def _parameter_of(self, mean: Array, variance: Array) -> Array:
        """Returns the parameter of targets with this mean and variance, arrays `[D]`."""
        raise NotImplementedError

    def best_constant(self, targets: Array) -> Tensor:
        """Returns the constant f in model units, `[D]`, for targets `[N, D]`."""
        statistic = self.statistic(targets)
        moments = RunningMoments(statistic.shape[-1])
        moments.update(statistic)
        return self.function_scaler(tf.constant(self._units_of(moments)[0]))

    def start_values(self, targets: Tensor) -> Tensor:
        """Returns values of f in model units near given targets, both `[N, D]`."""
        inside = self._inside(tf.cast(targets, tf.float64))
        return self.function_scaler(self._link(inside))

    def _inside(self, targets: Tensor) -> Tensor:
        """Returns targets that the link can take."""
        return targets

    # Densities, for f in model units ----------------------------------------------------------

    def log_prob(self, values: Tensor, targets: Tensor) -> Tensor:
        return self.expected_log_prob(GaussianMoments(tf.convert_to_tensor(values), None), targets)

    def expected_log_prob(
        self, moments: GaussianMoments, targets: Tensor, seed: Seed | None = None
    ) -> Tensor:
        mean, variance = moments
        scaler = self.function_scaler
        offset, spread = (tf.cast(v.value, mean.dtype) for v in (scaler.mean, scaler.stddev))
        scaled = None if variance is None else variance * tf.square(spread)
        moments = GaussianMoments(mean * spread + offset, scaled)
        return tf.reduce_sum(self._expected(moments, tf.cast(targets, mean.dtype)), axis=-1)

    def _expected(self, moments: GaussianMoments, targets: Tensor) -> Tensor:
        """Returns `E log p(y | f)` of each entry, by Gauss-Hermite quadrature."""
        return normal_expectation(lambda f: self._observed(f).log_prob(targets), moments)

    # Predictions, for f in the user's units ---------------------------------------------------

    def _observed(self, values: Tensor) -> Distribution:
        """Returns the distribution of a target, batch `[..., N, D]`, for such values of f."""
        raise NotImplementedError

    def _link(self, mean: Tensor) -> Tensor:
        """Returns f for a mean of the targets."""
        raise NotImplementedError

    def mean(self, values: ArrayLike) -> Tensor:
        """Returns `E(y | f)`, the function that `predict` is about.

        Args:
            values: `[..., D]`, f in the user's units, as `sample_functions` draws it.

        Returns:
            Tensor `[..., D]`.
        """
        return self._observed(tf.convert_to_tensor(values)).mean()

    def conditional(self, values: ArrayLike, unit: ArrayLike = 1.0) -> Distribution:
        """Returns the distribution of the observations given f.

        Args:
            values: `[..., N, D]`, f in the user's units.
            unit: Has no effect, as targets have the same units everywhere.

        Returns:
            `tfd.Independent`, event `[D]`.
        """
        observed = self._observed(tf.convert_to_tensor(values))
        return tfd.Independent(observed, reinterpreted_batch_ndims=1)

    def observed_moments(self, moments: GaussianMoments) -> tuple[GaussianMoments, Tensor]:
        r"""Returns the moments of `E(y | f)`, and the mean variance of an observation given f.

            Var y = Var E(y | f) + E Var(y | f)

        Args:
            moments: `GaussianMoments` of f, as for `mixture`.

        Returns:
            `GaussianMoments` of tensors `[N, D]`, and a tensor `[N, D]`. Integrals over Gaussian f
            are by quadrature.
        """

        def average(function):
            return tf.reduce_mean(normal_expectation(function, moments, _NUM_NODES), axis=0)

        mean = average(self.mean)
        spread = average(lambda f: tf.square(self.mean(f) - mean))
        return GaussianMoments(mean, spread), average(lambda f: self._observed(f).variance())

    def mean_noise_variance(self, moments: GaussianMoments, unit: ArrayLike = 1.0) -> Tensor:
        return self.observed_moments(moments)[1]

    def _components(self, moments: GaussianMoments, unit: ArrayLike, seed: Seed) -> Distribution:
        return self.conditional(at_nodes(moments, seed))

    # ------------------------------------------------------------------------------------------

    def get_config(self) -> Config:
        config = super().get_config()
        if self.parameter_name is not None:
            config[self.parameter_name] = self._given_parameter
        return config


class PositiveLikelihood(LinkedLikelihood):
    """A likelihood of positive targets whose link is a logarithm."""

    def check_targets(self, targets: Array, name: str = "y") -> None:
        good = (targets >= SMALLEST_TARGET) & (targets <= LARGEST_TARGET)
        limits = f"{SMALLEST_TARGET:g} to {LARGEST_TARGET:g}"
        rule = f"positive numbers (from {limits}) for `{type(self).__name__}`"
        data.check_rows(name, targets, good, rule)

    def _link(self, mean: Tensor) -> Tensor:
        return tf.math.log(mean)
