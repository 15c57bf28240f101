"""Classes as the leaves of a binary tree."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.boundary.arguments import checked_count, checked_positive
from tfp_fnspace.likelihoods.base import variance_of
from tfp_fnspace.likelihoods.categorical import Labels, one_component
from tfp_fnspace.math.expectations import normal_expectation
from tfp_fnspace.typing import Array, ArrayLike, Config, Distribution, GaussianMoments, Seed, Tensor

tfd = tfp.distributions


def binary_tree(num_classes: int) -> Array:
    r"""Returns the codes of K classes, paths of `H = ceil(log2 K)` signs, +1 for 0 and -1 for 1.

    The nodes that lie on a path are numbered level by level, from left to right.

    Args:
        num_classes: K, at least 2.

    Returns:
        NumPy array `[K, nodes]`: the sign of each node on the path of a class, 0 off it.
    """
    height = (num_classes - 1).bit_length()
    prefixes = [sorted({k >> (height - h) for k in range(num_classes)}) for h in range(height)]
    nodes = [(h, prefix) for h, level in enumerate(prefixes) for prefix in level]
    places = {node: place for place, node in enumerate(nodes)}
    signs = np.zeros((num_classes, len(nodes)))
    for k in range(num_classes):
        for h in range(height):
            bit = k >> (height - h - 1) & 1
            signs[k, places[h, k >> (height - h)]] = 1.0 - 2.0 * bit
    return signs


def _parents(signs: Array) -> list[tuple[np.integer, float]]:
    """Returns, for each node but the first, its parent and the sign of the branch to the node."""
    parents = []
    for place in range(1, signs.shape[1]):
        path = signs[np.argmax(signs[:, place] != 0.0), :place]  # the path to a class below
        parent = np.flatnonzero(path)[-1]
        parents.append((parent, path[parent]))
    return parents


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class HierarchicalCategorical(Labels):
    r"""One of K classes, leaves of a binary tree with one output of the model at each node.

    A label is a path of `H = ceil(log2 K)` signs s_h, +1 or -1, at nodes n_h (`binary_tree`):

        p(y = k | f) prop. to prod_h Phi(s_h f_{n_h} / sqrt(alpha^2 + scale^2))

    where the factor of proportionality removes the leaves that no class uses. TAGI observes only
    the signs on the path of a label, as targets with noise N(0, scale^2) (see `innovation`). For
    Gaussian f with means m and variances S, equation (24) of the paper is exact for K a power of
    two:

        p(y = k) prop. to prod_h Phi(s_h m_{n_h} / sqrt(alpha^2 + scale^2 + S_{n_h}))

    10 classes have 11 nodes; a power of two has K - 1. Targets are integer labels from 0 to K - 1,
    of shape `[N]` or `[N, 1]`. `mutual_information` is between f and the leaf that is reached when
    unused leaves are kept. If K is a power of two, this is the label.

    Args:
        num_classes: K, an integer of at least 2.
        scale: Standard deviation of the noise on the signs, a positive number.
        alpha: Positive number, the value of a noise-free output at which a sign has the probability
            Phi(1); 1/3 in the paper.
        **kwargs: `name`, `dtype`.

    Attributes:
        signs: NumPy array `[K, nodes]`, see `binary_tree`.
        num_outputs: Number of nodes, the outputs that a model must have.
        scale: Variable `[]`.

    Raises:
        ValueError: If `num_classes` is too small, or a scale is not a positive number.

    References:
        Goulet, Nguyen & Amiri (2021), "Tractable Approximate Gaussian Inference for Bayesian Neural
        Networks", appendix C.
    """

    def __init__(
        self, num_classes: int, scale: float = 0.3, alpha: float = 1.0 / 3.0, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.num_classes = checked_count("num_classes", num_classes, 2)
        self.signs = binary_tree(self.num_classes)
        self.num_outputs = self.signs.shape[1]
        self.alpha = checked_positive("alpha", alpha)
        self._initial_scale = checked_positive("scale", scale)
        self.scale = self.add_weight(
            name="scale",
            shape=(),
            initializer=keras.initializers.Constant(self._initial_scale),
            trainable=False,
            autocast=False,
        )

    @property
    def scale_variable(self) -> keras.Variable:
        """The weight that `set_scale` sets."""
        return self.scale

    def set_scale(self, scale: float) -> None:
        """Sets the noise scale."""
        self.scale.assign(checked_positive("scale", float(scale)))

    def check_outputs(self, num_outputs: int) -> None:
        """Refuses a number of outputs that differs from the number of nodes.

        Raises:
            ValueError: If the numbers differ.
        """
        if num_outputs != self.num_outputs:
            raise ValueError(
                f"With {self.num_classes} classes in a binary tree a model must have "
                f"{self.num_outputs} outputs, one for each node. Received: {num_outputs} outputs"
            )

    def num_labels(self, num_outputs: int) -> int:
        return self.num_classes

    def innovation(self, moments: GaussianMoments, targets: Tensor) -> tuple[Tensor, Tensor]:
        r"""Returns the innovations of f given labels, whose paths are signs observed with noise.

        Args:
            moments: `GaussianMoments` of f, tensors `[N, nodes]`.
            targets: Labels `[N, 1]` or `[N]`.

        Returns:
            Pair of tensors `[N, nodes]`.
        """
        mean, variance = moments[0], variance_of(moments)
        labels = tf.cast(tf.reshape(targets, [-1]), tf.int32)
        signs = tf.gather(tf.constant(self.signs, mean.dtype), labels)
        precision = tf.abs(signs) / (variance + self._squared_scale(mean.dtype))
        return (signs - mean) * precision, -precision

    def closed_form_probabilities(self, moments: GaussianMoments) -> Tensor:
        """Returns probabilities `[N, K]` for `GaussianMoments` of tensors `[N, nodes]`."""
        return self._mean_probabilities(one_component(moments))

    def mixture(
        self, moments: GaussianMoments, unit: ArrayLike = 1.0, seed: Seed = (0, 0)
    ) -> Distribution:
        return self.from_probabilities(self._mean_probabilities(moments))

    def uncertainty(self, moments: GaussianMoments, seed: Seed = (0, 0)) -> dict[str, Tensor]:
        probabilities = self._mean_probabilities(moments)
        entropy = self._entropy(probabilities)
        information = tf.clip_by_value(self._information(moments), 0.0, entropy)
        return {
            "probabilities": probabilities,
            "entropy": entropy,
            "mutual_information": information,
        }

    def _log_probabilities(self, values: Tensor) -> Tensor:
        return _normalized(self._log_paths(self._log_signs(values)))

    def _mean_probabilities(self, moments: GaussianMoments) -> Tensor:
        paths = self._log_paths(self._log_signs(*moments))  # [S, N, K]
        return tf.exp(_normalized(tf.reduce_logsumexp(paths, axis=0)))

    def _log_signs(self, mean: Tensor, variance: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns `log Phi(+-m / sqrt(alpha^2 + scale^2 + S))`, a pair of `[..., nodes]`."""
        total = self.alpha**2 + self._squared_scale(mean.dtype)
        ratio = mean / tf.sqrt(total if variance is None else total + variance)
        return _log_normal_cdf(ratio), _log_normal_cdf(-ratio)

    def _log_paths(self, logs: tuple[Tensor, Tensor]) -> Tensor:
        """Sums over the nodes of each path, `[..., K]`."""
        plus, minus = logs
        signs = tf.constant(self.signs.T, plus.dtype)
        paths = [tf.tensordot(log, tf.nn.relu(s), 1) for log, s in ((plus, signs), (minus, -signs))]
        return tf.add_n(paths)

    def _information(self, moments: GaussianMoments) -> Tensor:
        r"""Returns `sum_n [q_n h(p_n) - 1/S sum_s q_ns E h(Phi(f_ns / c))]`, `[N]`: the chain rule.

        Here q_n is the probability to reach node n, p_n the probability of +1 there given that it
        is reached, and h the entropy of two outcomes. The result is the entropy of the leaf minus
        its mean entropy given f.
        """
        mean, variance = moments
        plus, minus = map(tf.exp, self._log_signs(mean, variance))
        reached = self._reach(plus, minus)  # [S, N, nodes]
        given = normal_expectation(self._sign_entropy, GaussianMoments(mean, variance))
        total = tf.reduce_mean(reached, axis=0)
        share = tf.math.divide_no_nan(tf.reduce_mean(reached * plus, axis=0), total)
        information = total * _binary_entropy(share) - tf.reduce_mean(reached * given, axis=0)
        return tf.reduce_sum(information, axis=-1)

    def _sign_entropy(self, values: Tensor) -> Tensor:
        plus, minus = map(tf.exp, self._log_signs(values))
        return -tf.math.xlogy(plus, plus) - tf.math.xlogy(minus, minus)

    def _reach(self, plus: Tensor, minus: Tensor) -> Tensor:
        """Returns the probability to reach each node, `[..., nodes]`."""
        first = plus[..., 0]  # pyright: ignore[reportArgumentType]
        reached = [tf.ones_like(first)]
        for parent, sign in _parents(self.signs):
            side = plus if sign > 0 else minus
            branch = side[..., parent]  # pyright: ignore[reportArgumentType]
            reached.append(reached[parent] * branch)
        return tf.stack(reached, axis=-1)

    def _squared_scale(self, dtype: tf.DType) -> Tensor:
        return tf.square(tf.cast(self.scale, dtype))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "scale": self._initial_scale,
            "alpha": self.alpha,
        }


def _log_normal_cdf(x: Tensor) -> Tensor:
    """Returns `log Phi(x)`, without the underflow of Phi."""
    return tfd.Normal(tf.zeros([], x.dtype), tf.ones([], x.dtype)).log_cdf(x)


def _binary_entropy(p: Tensor) -> Tensor:
    return -tf.math.xlogy(p, p) - tf.math.xlogy(1.0 - p, 1.0 - p)


def _normalized(logs: Tensor) -> Tensor:
    return logs - tf.reduce_logsumexp(logs, axis=-1, keepdims=True)
