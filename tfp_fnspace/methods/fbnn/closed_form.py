"""The divergence in closed form of networks whose functions are Gaussian."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfp_fnspace.boundary.streams import Batch
from tfp_fnspace.layers.gaussian_output import GaussianOutput, JointGaussian
from tfp_fnspace.likelihoods import Gaussian
from tfp_fnspace.methods.fbnn.divergences import ClosedForm
from tfp_fnspace.model.units import Units
from tfp_fnspace.typing import GaussianMoments

if TYPE_CHECKING:
    from tfp_fnspace.methods.fbnn.model import FBNNModel

#: Number of rows whose features are in memory at once while the last layer is fitted.
_ROWS_OF_FEATURES = 2000

#: Least initial value of a trained noise scale, relative to its minimum, at which it would not
#: move.
_ABOVE_LEAST = 1.01


def gaussian_output(model: "FBNNModel") -> GaussianOutput | None:
    """Returns the `GaussianOutput` of a model's network, `None` unless its divergence needs it.

    Args:
        model: `FBNNModel` with `divergence`, `prior`, `likelihood` and `in_users_units`.

    Raises:
        ValueError: If the divergence has no closed form, or the last layer cannot be fitted.
    """
    if not isinstance(model.divergence, ClosedForm):
        return None
    output = GaussianOutput(model.network)
    refuse_other_priors(model)
    if model.in_users_units:
        raise ValueError(
            "`ClosedForm` needs a network from inputs to values in model units. "
            "Received: in_users_units=True, as networks of `from_keras` have it"
        )
    if model.divergence.fit_output:
        if type(model.likelihood) is not Gaussian:
            raise ValueError(
                "`fit_output` needs a Gaussian likelihood. "
                f"Received: likelihood={type(model.likelihood).__name__}"
            )
        output.prior_scales()  # refuses unsuitable layers
    return output


def refuse_other_priors(model: "FBNNModel") -> None:
    """Refuses a prior that is no Gaussian process.

    Args:
        model: `FBNNModel` with `divergence` and `prior`.

    Raises:
        ValueError: If it is none.
    """
    if not model.prior.is_gaussian:
        raise ValueError(
            f"`{type(model.divergence).__name__}` needs a Gaussian process as prior. "
            f"Received: prior={type(model.prior).__name__}"
        )


def fit_output(
    output: GaussianOutput,
    likelihood: Gaussian,
    units: Units,
    batches: Iterable[Batch],
) -> None:
    """Fits the last layer to data, in parts of the rows so that features take little memory.

    Args:
        output: `GaussianOutput`.
        likelihood: `likelihoods.Gaussian`; a trained scale starts at the maximum of the marginal
            likelihood.
        units: `Units` of the model.
        batches: Iterable of lists of one array `[B, ...]`, arrays `[B, D]` and perhaps weights
            `[B]`, in the user's units.
    """

    def parts():
        for (x,), targets, *weights in batches:
            for i in range(0, len(targets), _ROWS_OF_FEATURES):
                rows = slice(i, i + _ROWS_OF_FEATURES)
                (inputs,) = units.scaled([tf.constant(x[rows])])
                scaled = units.target_scaler(tf.constant(targets[rows]))
                yield inputs, scaled, *(values[rows] for values in weights)

    regression = output.regression(parts())
    if likelihood.trainable_variables:
        separate, least = bool(likelihood.scale.shape.rank), likelihood.min_scale
        best = regression.best_noise_scale(_ABOVE_LEAST * least, separate)
        likelihood.set_scale(best)
    scale = tf.cast(likelihood.scale, tf.float64).numpy()
    posterior = output.layer.posterior  # conditioned, as `prior_scales` has checked
    posterior.condition(regression, scale)  # pyright: ignore[reportAttributeAccessIssue]


def moments_of(joint: JointGaussian, dtype: Any) -> GaussianMoments:
    """Returns the `GaussianMoments` of a joint distribution, `[1, N, D]`."""
    moments = joint.mean, joint.variance()
    return GaussianMoments(*(tf.cast(part, dtype)[tf.newaxis] for part in moments))
