"""Warped targets: the choice of a monotone transform, and models of transformed targets."""

from typing import Any, NamedTuple, NoReturn, Self

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace import likelihoods
from tfp_fnspace.distributions import observations
from tfp_fnspace.distributions.quantile import is_mixture
from tfp_fnspace.model import FunctionSpaceModel, summary
from tfp_fnspace.model.wrapping import set_up_around
from tfp_fnspace.typing import Array, ArrayLike, Config, Distribution, Rows, Seed, Tensor

tfd = tfp.distributions

#: Candidates for the shift and scale of `asinh((y - shift) / scale)`. The shifts are quantiles of
#: y, and a value just below its minimum. The scales are fractions of the width between the 5 % and
#: the 95 % quantile. With a scale of `_STRAIGHT` widths the warp is practically a straight line.
_SHIFTS, _SCALES = (0.05, 0.5, 0.95, 1.0), (0.01, 0.03, 0.1, 0.3, 1.0)
_STRAIGHT = 1e4

#: Standard deviation of the error of rounding to multiples of 1. A finer scale would fit gaps
#: between values that are only due to rounding.
_ROUNDING = 12.0**-0.5

#: The mean gain of a row by a warp must be at least this many of its standard errors.
_LEAST_ERRORS = 2.0

#: A standard deviation of z is at most that of the warped targets in training, or this number where
#: that is smaller. The mean of `sinh(z)` grows as exp(stddev^2 / 2), so a network that extrapolates
#: to a standard deviation of 3 would multiply the mean by 90.
_LEAST_BOUND = 1.0

#: The regression that chooses: the most rows, the most random features, and the penalties.
_MOST_ROWS, _MOST_FEATURES, _PENALTIES = 5000, 200, (1.0, 10.0, 100.0, 1000.0)


class Warp(NamedTuple):
    """`z_d = asinh((y_d - shift_d) / scale_d)` for each column of the targets.

    Attributes:
        shift: Array `[D]`, in units of the targets.
        scale: Array `[D]` of positive numbers, in units of the targets.
        most_stddev: Array `[D]`, the largest standard deviation of `z_d` in a prediction.
    """

    shift: np.ndarray
    scale: np.ndarray
    most_stddev: np.ndarray

    def __call__(self, y: Array) -> Array:
        """Returns the warped targets `[N, D]`."""
        return np.arcsinh((y - self.shift) / self.scale)

    def log_jacobian(self, y: Array) -> Array:
        """Returns `sum_d log dz_d / dy_d`, `[N]`."""
        u = (y - self.shift) / self.scale
        return -np.sum(0.5 * np.log1p(np.square(u)) + np.log(self.scale), axis=1)


class Choice(NamedTuple):
    """The warp that a regression has chosen.

    Attributes:
        warp: `Warp`, or `None` if no warp improves the regression.
        log_density: Mean log density of a row given all others under this choice, a float.
    """

    warp: Warp | None
    log_density: float


def chosen_warp(x: Array, y: Array, seed: int = 0) -> Choice:
    """Returns the warp under which a regression predicts unseen rows best.

    The regression is linear in the inputs and in random ReLU features of them, with a quadratic
    penalty. The criterion is the log density of each row given all others. It has a closed form, as
    Box and Cox's likelihood has. A warp must beat the straight line by two standard errors.

    Args:
        x: Inputs `[N, X]`.
        y: Targets `[N, D]`.
        seed: Seed of the features, and of the choice of rows if there are more than 5,000.

    Returns:
        `Choice`.

    References:
        Box and Cox (1964), "An analysis of transformations", JRSS B 26.
        Snelson, Rasmussen and Ghahramani (2004), "Warped Gaussian processes", NeurIPS 16.
    """
    generator = np.random.default_rng(seed)
    if len(y) > _MOST_ROWS:
        rows = generator.choice(len(y), _MOST_ROWS, replace=False)
        x, y = x[rows], y[rows]
    basis = _left_singular(_features(x, generator))
    found = [_of_column(column, *basis) for column in y.T]
    log_density = sum(each.log_density for each in found)
    if not any(each.is_warped for each in found):
        return Choice(None, log_density)
    warp = Warp(*(np.array([getattr(f, field) for f in found]) for field in Warp._fields))
    return Choice(warp, log_density)


def _features(x, generator):
    """Returns centred inputs and random ReLU features, each of variance 1, `[N, F]`."""
    x = _standardised(x)
    weights = generator.normal(size=(x.shape[1], min(_MOST_FEATURES, len(x) // 4)))
    hidden = np.maximum(x @ (weights / np.sqrt(x.shape[1])), 0.0)
    return np.concatenate([x, _standardised(hidden)], axis=1)


def _standardised(values):
    spread = np.std(values, axis=0)
    return (values - np.mean(values, axis=0)) / np.where(spread > 0.0, spread, 1.0)


def _left_singular(features):
    u, s, _ = np.linalg.svd(features, full_matrices=False)
    return u, np.square(s)


class _Column(NamedTuple):
    """The choice for a column of the targets."""

    shift: float
    scale: float
    most_stddev: float
    is_warped: bool
    log_density: float


def _of_column(y, u, squares):
    """Chooses the warp of one column."""
    width = np.subtract(*np.quantile(y, [0.95, 0.05])) or np.std(y) or 1.0
    straight = _density_of_others(y, np.zeros_like(y), u, squares)
    scale = _STRAIGHT * float(width)
    found = _Column(float(np.mean(y)), scale, _LEAST_BOUND, False, float(np.mean(straight)))
    gap = _gap(y)
    if not gap:
        return found  # all values are equal
    for shift in np.unique([np.min(y) - 0.5 * gap, *np.quantile(y, _SHIFTS)]):
        for scale in np.unique(np.maximum(np.multiply(_SCALES, width), gap * _ROUNDING)):
            warp = Warp(shift[np.newaxis], scale[np.newaxis], None)
            z = warp(y[:, np.newaxis])
            density = _density_of_others(z[:, 0], warp.log_jacobian(y[:, np.newaxis]), u, squares)
            gain = density - straight
            error = np.std(gain) / np.sqrt(len(gain))
            is_clear = np.mean(gain) > _LEAST_ERRORS * error
            if is_clear and np.mean(density) > found.log_density:
                bound = max(_LEAST_BOUND, float(np.std(z)))
                found = _Column(float(shift), float(scale), bound, True, float(np.mean(density)))
    return found


def _gap(y):
    """Returns the least distance between two different values, to which counts are rounded."""
    values = np.unique(y)
    return np.min(np.diff(values)) if len(values) > 1 else 0.0


def _density_of_others(z, log_jacobian, u, squares):
    """Returns the log density of each row given all others, under the best penalty, `[N]`."""
    spread = np.std(z) or 1.0
    z = (z - np.mean(z)) / spread
    best = None
    for penalty in _PENALTIES:
        shrunk = u * (squares / (squares + penalty))
        of_itself = np.sum(shrunk * u, axis=1) + 1.0 / len(z)
        residual = (z - shrunk @ (u.T @ z)) / np.maximum(1.0 - of_itself, 1e-3)
        variance = max(np.mean(np.square(residual)), 1e-12)
        density = -0.5 * (np.log(2.0 * np.pi * variance) + np.square(residual) / variance)
        if best is None or np.mean(density) > np.mean(best):
            best = density
    return best - np.log(spread) + log_jacobian


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class WarpedModel(FunctionSpaceModel):
    r"""A fitted model of warped targets, as a model of the targets themselves.

        z_d = asinh((y_d - shift_d) / scale_d),      p(y | x) = p(z | x) prod_d |dz_d / dy_d|

    If z is Gaussian, y has Johnson's S_U distribution, which may be skewed or have heavy tails. A
    function value of y is the mean over the noise, `E[y | f]`. Its variance and that of the noise
    are those of Gaussian f and noise with the moments of the member, times a factor that makes them
    add up to the variance of y. A standard deviation of z that is larger than `most_stddev` is
    replaced by it, since the mean of y grows as the exponential of its square.

    The member keeps its weights. The model predicts, is evaluated, saved and exported as the member
    is, but it cannot be trained. To train the member, give it warped targets:
    `model.member.fit(x, model.warp(y))`.

    Args:
        member: Fitted regression whose predictive distributions are Gaussian or mixtures of
            Gaussians.
        shift: List of D numbers, in units of the targets.
        scale: List of D positive numbers, in units of the targets.
        most_stddev: List of D positive numbers, in units of z.
        **kwargs: `name`.

    Raises:
        ValueError: If the numbers do not match the columns of the targets, or are not positive.

    References:
        Johnson (1949), "Systems of frequency curves generated by methods of translation",
        Biometrika 36.
    """

    input_scaler_dtype = "float64"  # the member takes inputs in the user's units

    def __init__(
        self,
        member: FunctionSpaceModel,
        shift: ArrayLike,
        scale: ArrayLike,
        most_stddev: ArrayLike,
        **kwargs: Any,
    ):
        super().__init__(autocast=False, **kwargs)
        self.member = member
        width = member.num_target_columns
        values = [np.asarray(v, np.float64) for v in (shift, scale, most_stddev)]
        if any(v.shape != (width,) for v in values) or not np.all(np.stack(values[1:]) > 0.0):
            received = ", ".join(
                f"{f}={v.tolist()}" for f, v in zip(Warp._fields, values, strict=True)
            )
            raise ValueError(
                "`shift`, `scale` and `most_stddev` must have a number for each column of the "
                "targets, those of the last two positive. "
                f"Received: {received}, a member of {width} columns"
            )
        self.warp = Warp(*values)
        set_up_around(self, [member], likelihoods.Gaussian(1.0), width)

    @property
    def predict_batch_size(self) -> int:
        return self.member.predict_batch_size

    def predicted(self, x: Tensor | list[Tensor]) -> summary.Predicted:
        found = self.member.predicted(x)
        distribution = self._unwarped(found.distribution())
        return summary.Predicted(
            lambda: distribution, lambda: self._tensors(distribution, found.tensors())
        )

    def _unwarped(self, distribution):
        """Converts the distribution of z to that of y."""
        shift, scale = (tf.constant(v) for v in (self.warp.shift, self.warp.scale))
        logits, mean, stddev = observations.normal_components(distribution)
        mean, stddev = tf.cast(mean, tf.float64), tf.cast(stddev, tf.float64)
        stddev = tf.minimum(stddev, self.warp.most_stddev)
        normal = observations.JohnsonSU(-mean / stddev, 1.0 / stddev, shift, scale)
        if is_mixture(distribution):
            return observations.mixture(tf.cast(logits, tf.float64), normal)
        one = observations.JohnsonSU(
            normal.skewness[:, 0], normal.tailweight[:, 0], shift, scale
        )  # `[N, D]` for one component
        return tfd.Independent(one, reinterpreted_batch_ndims=1)

    def _tensors(self, distribution, found):
        """Returns the tensors of `predict` for those of the member."""
        variance = distribution.variance()
        mean, of_function, noise, _ = self._bounded(found)
        of_function, noise = tf.square(of_function), tf.square(noise)
        share = tf.math.divide_no_nan(
            tf.exp(noise) * _variance_of_sinh(mean, of_function),
            _variance_of_sinh(mean, of_function + noise),
        )
        share = tf.clip_by_value(share, 0.0, 1.0)
        return {
            "mean": distribution.mean(),
            "stddev": tf.sqrt(variance),
            "epistemic_stddev": tf.sqrt(share * variance),
            "aleatoric_stddev": tf.sqrt((1.0 - share) * variance),
        }

    def _bounded(self, found):
        """Returns the moments of z, and the factor by which `most_stddev` reduces its deviations.

        Args:
            found: The tensors of `predict` of the member.

        Returns:
            Mean, epistemic and aleatoric standard deviation, both reduced, and the factor, in
            (0, 1], each `[N, D]`.
        """
        mean, of_function, noise = (
            tf.cast(found[key], tf.float64)
            for key in ("mean", "epistemic_stddev", "aleatoric_stddev")
        )
        stddev = tf.sqrt(tf.square(of_function) + tf.square(noise))
        factor = tf.minimum(tf.math.divide_no_nan(self.warp.most_stddev, stddev), 1.0)
        factor = tf.where(stddev > 0.0, factor, 1.0)
        return mean, factor * of_function, factor * noise, factor

    def functions(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> Tensor:
        """Draws functions `[S, N, D]`, the means of y over the noise given f."""
        x = self.checks.pack(inputs)
        draws = tf.cast(self.member.draw_functions(x, num_samples, seed), tf.float64)
        mean, _, noise, factor = self._bounded(self.member.predictive_moments(x))
        draws = mean + factor * (draws - mean)
        return self.warp.shift + self.warp.scale * tf.exp(0.5 * tf.square(noise)) * tf.sinh(draws)

    def predict_distribution(
        self, x: Rows, batch_size: int | None = None, joint: bool = False
    ) -> Distribution:
        """Returns the predictive distribution of the observations at each point.

        Args:
            x: Array `[N, X]`.
            batch_size: Rows in a batch.
            joint: Must be false.

        Returns:
            `tfd.Distribution` in units of the targets, batch `[N]`, event `[D]`.

        Raises:
            ValueError: If `joint` is true, or the data are bad.
        """
        if joint:
            return super().predict_distribution(x, batch_size=batch_size, joint=joint)
        return self._unwarped(self.member.predict_distribution(x, batch_size=batch_size))

    def fit(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises an error: only the member is fitted, to warped targets.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "A `WarpedModel` must have a fitted member and cannot be trained itself: "
            "`model.member.fit(x, model.warp(y))` continues its training. Received: a call of fit"
        )

    def with_member(self, member: FunctionSpaceModel) -> "WarpedModel":
        """Returns a model with the same warp and another member.

        Args:
            member: As for the class.

        Returns:
            `WarpedModel`.
        """
        return WarpedModel(member, *self.warp)

    def get_config(self) -> Config:
        return {
            "name": self.name,
            "member": keras.saving.serialize_keras_object(self.member),
            **{field: values.tolist() for field, values in self.warp._asdict().items()},
        }

    @classmethod
    def from_config(cls, config: Config, custom_objects: dict[str, Any] | None = None) -> Self:
        load = keras.saving.deserialize_keras_object
        return cls(**{**config, "member": load(config["member"], custom_objects=custom_objects)})


def _variance_of_sinh(mean, variance):
    """Returns `Var[sinh(g)]` for Gaussian g."""
    return 0.5 * tf.math.expm1(variance) * (tf.exp(variance) * tf.cosh(2.0 * mean) + 1.0)
