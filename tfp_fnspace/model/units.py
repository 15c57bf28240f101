"""The user's units and those of a model, and the only place that converts between them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary import data
from tfp_fnspace.layers.scaler import Standardizer
from tfp_fnspace.likelihoods.base import Likelihood
from tfp_fnspace.typing import ArrayLike, GaussianMoments, Tensor

#: Entries of `History` that are log densities of a row. `loss` is a negative log density.
LOG_DENSITIES = ("log_likelihood", "elbo")


@keras.saving.register_keras_serializable(package="tfp_fnspace")
class Units(keras.layers.Layer):
    """Conversions of rows, moments, functions and log densities.

    Model units are standard deviations from the mean of the data, if the model standardises, and
    the user's units otherwise. Logits of classes, labels and indices have no units and stay as they
    are. A model has its units as soon as it knows the shapes of its inputs and targets.

    Args:
        input_tensors: Symbolic inputs of the model, a list of `keras.KerasTensor`.
        likelihood: Observation model, built.
        num_outputs: Outputs of the model, those that describe the noise included.
        standardize: Whether inputs and targets are standardised.
        index_inputs: For each input that holds indices, the number of rows of its table; else
            `None`. These inputs are not standardised.
        input_roles: For each input that holds variances, the number of the input that they belong
            to; else `None`.
        input_dtype: Dtype of standardised inputs, by default that of the layer.
        **kwargs: `name`, `dtype`.

    Attributes:
        input_scalers: List of `Standardizer`, one for each input.
        target_scaler: `Standardizer` of the targets.
        function_scaler: `Standardizer` of f, which is that of the targets unless there is a link.
        in_users_units: List that tells for each input whether its values are in the user's units,
            and thus float64. These are inputs that are standardised, here or by a member of the
            model, and the variances of such inputs.
        num_target_columns: Columns of the targets: D, or one of class labels.
        num_functions: The number of outputs that are functions. Those after them describe the
            noise.
    """

    def __init__(
        self,
        input_tensors: Iterable[keras.KerasTensor],
        likelihood: Likelihood,
        num_outputs: int,
        *,
        standardize: bool,
        index_inputs: Sequence[int | None] | None = None,
        input_roles: Sequence[int | None] | None = None,
        input_dtype: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(autocast=False, **{"trainable": False, "name": "units", **kwargs})
        self.input_tensors = list(input_tensors)
        none = [None] * len(self.input_tensors)
        self.roles = list(input_roles or none)
        self.is_classifier = likelihood.is_classifier
        self.num_target_columns = likelihood.num_target_columns(num_outputs)
        self.has_noise_outputs = likelihood.has_noise_outputs
        self.num_functions = self.num_target_columns if self.has_noise_outputs else num_outputs
        self.input_scalers = [
            Standardizer(
                enabled=standardize and rows is None and role is None and _is_real(tensor),
                dtype=input_dtype or self.variable_dtype,
            )
            for tensor, rows, role in zip(
                self.input_tensors, index_inputs or none, self.roles, strict=True
            )
        ]
        self.in_users_units = [
            self.input_scalers[i if role is None else role].enabled
            for i, role in enumerate(self.roles)
        ]
        self.has_link = likelihood.has_link
        enabled = standardize and not (self.is_classifier or self.has_link)
        self.target_scaler = Standardizer(enabled=enabled, dtype=self.variable_dtype)
        for scaler, tensor in zip(self.input_scalers, self.input_tensors, strict=True):
            scaler.build(tensor.shape)
        self.target_scaler.build((None, self.num_target_columns))
        self.function_scaler = self.target_scaler
        if self.has_link:
            self.function_scaler = likelihood.function_scaler
            self.function_scaler.enabled = standardize
        self.built = True

    @property
    def scalers(self) -> list[Standardizer]:
        """The `Standardizer`s of all inputs and of the targets, a list."""
        return [*self.input_scalers, self.target_scaler]

    @property
    def ready(self) -> bool:
        """Whether all standardisations are known, or not needed."""
        return all(scaler.ready for scaler in [*self.scalers, self.function_scaler])

    # From the user's units --------------------------------------------------------------------

    def scaled(self, inputs: Any) -> list[Tensor]:
        """Converts inputs to model units.

        Args:
            inputs: Tensor `[N, ...]`, or a list of tensors, in the user's units.

        Returns:
            List of tensors.
        """
        tensors = data.check_structure(inputs, self.input_tensors)
        return [
            # Variances are scaled by the unit of the values that they belong to.
            scaler(x) if role is None else self.input_scalers[role].scale_variance(x)
            for x, scaler, role in zip(tensors, self.input_scalers, self.roles, strict=True)
        ]

    # To the user's units ----------------------------------------------------------------------

    def about_targets(self, values: Tensor) -> Tensor:
        """Returns those outputs that are functions, `[..., D]` of `[..., D + E]`."""
        return values[..., : self.num_functions]  # pyright: ignore[reportArgumentType]

    def functions(self, values: Tensor) -> Tensor:
        """Converts outputs of the model to functions in the user's units.

        Args:
            values: Tensor `[..., D + E]`.

        Returns:
            Tensor `[..., D]`, float64, on the scale of the link if there is one; logits keep their
            dtype.
        """
        values = self.about_targets(values)
        return values if self.is_classifier else self.function_scaler.inverse(values)

    def moments(self, moments: GaussianMoments) -> GaussianMoments:
        """Converts moments of outputs of the model.

        Args:
            moments: `GaussianMoments` of tensors `[..., D + E]`. The variance may be `None`.

        Returns:
            `GaussianMoments` in float64, whose first D columns are in the user's units.
        """
        mean, variance = moments
        if self.is_classifier:
            return GaussianMoments(mean, variance)
        if variance is not None:
            functions = tf.cast(self.about_targets(variance), tf.float64)
            scaled = functions * tf.square(self.function_scaler.stddev.value)
            variance = self._with_noise_outputs(scaled, variance)
        return GaussianMoments(self._with_noise_outputs(self.functions(mean), mean), variance)

    def _with_noise_outputs(self, functions: Tensor, values: Tensor) -> Tensor:
        """Returns functions, followed by the outputs that describe the noise in model units."""
        if not self.has_noise_outputs:
            return functions
        others = values[..., self.num_functions :]  # pyright: ignore[reportArgumentType]
        return tf.concat([functions, tf.cast(others, functions.dtype)], axis=-1)

    @property
    def target_unit(self) -> Tensor:
        """One model unit of the targets in the user's units, float64 tensor `[D]`."""
        return self.target_scaler.stddev.value

    @property
    def log_target_units(self) -> Tensor:
        """What a log density of each target loses from model units to the user's, float64 `[D]`.

        It is 0 for classes.
        """
        if self.is_classifier:
            return tf.zeros([1], tf.float64)
        return tf.math.log(self.target_unit)

    @property
    def log_target_unit(self) -> Tensor:
        """The sum of `log_target_units` over a row of targets, a float64 scalar."""
        return tf.reduce_sum(self.log_target_units)

    def logs(self, logs: Mapping[str, ArrayLike]) -> dict[str, Tensor]:
        """Converts the logs of a step or an epoch.

        The sum over the targets of the logarithms of their units is subtracted from each log
        density of a row (`LOG_DENSITIES`). It is added to `loss`, which is a negative log density
        with or without further terms. Other entries, such as divergences, have no units.

        Args:
            logs: Dict of tensors or numbers, in model units.

        Returns:
            Dict of tensors of the same names.
        """
        shift = self.log_target_unit
        signs = {**dict.fromkeys(LOG_DENSITIES, -1.0), "loss": 1.0}
        values = {name: tf.convert_to_tensor(value) for name, value in logs.items()}
        return {
            name: v + signs[name] * tf.cast(shift, v.dtype) if name in signs else v
            for name, v in values.items()
        }


def _is_real(tensor: keras.KerasTensor) -> bool:
    """Returns whether a tensor can hold standardised values.

    Keras casts the inputs of a model to the dtypes of its input tensors.
    """
    return "float" in keras.backend.standardize_dtype(tensor.dtype)
