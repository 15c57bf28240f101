"""A fitted model whose predictive distribution has been adjusted."""

from typing import Any, NoReturn, Self

import keras
import tensorflow as tf

from tfp_fnspace import likelihoods
from tfp_fnspace.calibration.adjustments import Recalibration, Scaling, Tempering
from tfp_fnspace.model import FunctionSpaceModel, summary
from tfp_fnspace.model.wrapping import set_up_around
from tfp_fnspace.typing import Config, Distribution, Rows, Seed, Tensor


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class CalibratedModel(FunctionSpaceModel):
    """A fitted model with an adjustment of what it predicts.

    The member keeps its weights. The model predicts, is evaluated, saved and exported as the member
    is, but it cannot be trained. Functions are those of the member, at distances from the mean that
    are adjusted as the standard deviation is; those of a classifier are unchanged.

    Args:
        member: Fitted model of this library.
        adjustment: `Scaling` or `Recalibration` for a regression, `Tempering` for classes.
        **kwargs: `name`.

    Attributes:
        member: The model that was fitted.
        adjustment: What is done to its predictive distribution.

    Raises:
        TypeError: If the adjustment is for another kind of targets.
        ValueError: If it has another number of columns than the targets.
    """

    input_scaler_dtype = "float64"  # the member takes inputs in the user's units

    def __init__(
        self,
        member: FunctionSpaceModel,
        adjustment: Scaling | Recalibration | Tempering,
        **kwargs: Any,
    ):
        super().__init__(autocast=False, **kwargs)
        self.member, self.adjustment = member, adjustment
        is_classifier = member.likelihood.is_classifier
        if getattr(adjustment, "is_of_classes", None) is not is_classifier:
            needed = "Tempering" if is_classifier else "Scaling or Recalibration"
            raise TypeError(
                f"`adjustment` of this model must be {needed}. "
                f"Received: adjustment of type {type(adjustment).__name__}"
            )
        if adjustment.num_columns != member.num_target_columns:
            raise ValueError(
                "`adjustment` must have a number for each column of the targets, "
                f"{member.num_target_columns}. Received: {adjustment.num_columns} columns"
            )
        likelihood, num_outputs = likelihoods.Gaussian(1.0), member.num_target_columns
        if isinstance(member.likelihood, likelihoods.Bernoulli):
            likelihood = likelihoods.Bernoulli()
        elif is_classifier:
            likelihood = likelihoods.Categorical()
            num_outputs = member.likelihood.num_labels(member.num_outputs)
        set_up_around(self, [member], likelihood, num_outputs)

    @property
    def predict_batch_size(self) -> int:
        return self.member.predict_batch_size

    def predicted(self, x: Tensor | list[Tensor]) -> summary.Predicted:
        found = self.member.predicted(x)
        if isinstance(self.adjustment, Tempering):
            are_binary = isinstance(self.likelihood, likelihoods.Bernoulli)
            outputs = self.adjustment.tensors(found.tensors(), are_binary)
            probabilities = outputs["probabilities"]
            return summary.Predicted(
                lambda: self.likelihood.from_probabilities(probabilities), lambda: outputs
            )
        adjustment = self.adjustment
        distribution = adjustment.distribution(found.distribution())
        return summary.Predicted(
            lambda: distribution, lambda: adjustment.tensors(found.tensors(), distribution)
        )

    def functions(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> Tensor:
        """Draws functions `[S, N, D]`; those of a classifier are the member's."""
        x = self.checks.pack(inputs)
        draws = self.member.draw_functions(x, num_samples, seed)
        if isinstance(self.adjustment, Tempering):
            return draws
        return self.adjustment.functions(tf.cast(draws, tf.float64), self.member.predicted(x))

    def predict_distribution(
        self, x: Rows, batch_size: int | None = None, joint: bool = False
    ) -> Distribution:
        """Returns the predictive distribution of the observations at each point.

        Args:
            x: As for the member.
            batch_size: Rows in a batch.
            joint: Must be false.

        Returns:
            `tfd.Distribution` in the user's units, batch `[N]`, event `[D]`; for classes as in
            other models.

        Raises:
            ValueError: If `joint` is true, or the data are bad.
        """
        if joint or isinstance(self.adjustment, Tempering):
            return super().predict_distribution(x, batch_size=batch_size, joint=joint)
        found = self.member.predict_distribution(x, batch_size=batch_size)
        return self.adjustment.distribution(found)

    def fit(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises an error: only the member is fitted, and calibrated anew after that.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "A `CalibratedModel` must have a fitted member and cannot be trained itself: fit "
            "`model.member` and calibrate it on new rows. Received: a call of fit"
        )

    def with_member(self, member: FunctionSpaceModel) -> "CalibratedModel":
        """Returns a model with the same adjustment and another member.

        Args:
            member: As for the class.

        Returns:
            `CalibratedModel`.
        """
        return CalibratedModel(member, self.adjustment)

    def get_config(self) -> Config:
        serialize = keras.saving.serialize_keras_object
        return {
            "name": self.name,
            "member": serialize(self.member),
            "adjustment": serialize(self.adjustment),
        }

    @classmethod
    def from_config(cls, config: Config, custom_objects: dict[str, Any] | None = None) -> Self:
        load = keras.saving.deserialize_keras_object
        parts = {
            name: load(config[name], custom_objects=custom_objects)
            for name in ("member", "adjustment")
        }
        return cls(**{**config, **parts})
