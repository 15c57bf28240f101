"""A check whether training has learnt anything at all."""

from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tfp_fnspace import notices
from tfp_fnspace.likelihoods.base import Likelihood
from tfp_fnspace.typing import Array, Tensor

if TYPE_CHECKING:
    from tfp_fnspace.model.base import FunctionSpaceModel

#: After this many steps, a model that explains nothing may be right: there is nothing to learn.
_FEW_STEPS = 300

#: Before this many epochs nobody expects much.
_FEW_EPOCHS = 3

#: The least share that a model should have learnt of what a constant leaves unexplained.
_LEAST_PART = 0.1


def warn_of_no_progress(
    model: "FunctionSpaceModel", history: dict[str, list[float]], targets: Array
) -> None:
    """Warns if a model is no better than a constant after few steps.

    The last epoch reports the mean `log_likelihood` of a row over draws of f. It is compared with
    the log-likelihood of the best constant under the same noise.

    Args:
        model: `GradientModel`.
        history: Dict of lists, the history of the run.
        targets: Array `[N, D]` that the model was trained on, in the user's units.
    """
    steps, reported = int(model.counters.steps.numpy()), history.get("log_likelihood")
    few = int(model.counters.epochs.numpy()) < _FEW_EPOCHS
    if not reported or few or steps > _FEW_STEPS:
        return
    constant = _of_constant(model.likelihood, model.units.target_scaler(tf.constant(targets)))
    gain = reported[-1] + float(model.units.log_target_unit) - constant
    if constant < 0.0 and gain < -_LEAST_PART * constant:
        unit = float(model.units.log_target_unit)
        notices.warn(
            f"After {steps} steps the model explains the training data hardly better than a "
            f"constant (log-likelihood {reported[-1]:.4g} of a row, for a constant "
            f"{constant - unit:.4g}). Unless there is nothing to learn, use more epochs, or a "
            "larger learning rate in `compile(optimizer=...)`."
        )


def _of_constant(likelihood: Likelihood, targets: Tensor) -> float:
    """Returns the mean log-likelihood of a row for the best constant function, in model units."""
    if likelihood.is_classifier:
        return _of_frequencies(targets.numpy())
    if likelihood.has_noise_outputs:  # the noise is fitted too
        variance = tf.math.reduce_variance(targets, axis=0) + np.finfo(np.float32).tiny
        return float(-0.5 * tf.reduce_sum(tf.math.log(2.0 * np.pi * np.e * variance)))
    constant = likelihood.best_constant(targets.numpy()) + tf.zeros_like(targets)
    return float(tf.reduce_mean(likelihood.log_prob(constant, targets)))


def _of_frequencies(labels: Array) -> float:
    """Returns the negative entropy of the labels, summed over columns."""
    total = 0.0
    for column in labels.T:
        _, counts = np.unique(column, return_counts=True)
        share = counts / counts.sum()
        total += float(np.sum(share * np.log(share)))
    return total
