"""Requirements of a TAGI model for its inputs."""

import numpy as np

from tfp_fnspace import data
from tfp_fnspace.methods.tagi import graph
from tfp_fnspace.typing import GaussianMoments


class TAGIInputs:
    """Mixin of `TAGIModel`: inputs that are variances or indices, and rows with a state."""

    def _check_values(self, inputs):
        for array, role in zip(inputs, self.input_roles, strict=True):
            if role is not None and np.any(np.less(array, 0.0)):
                raise ValueError(
                    "An input of variances must not be negative. "
                    f"Received: a smallest value of {np.min(array)}"
                )
        for array, rows in zip(inputs, self.index_inputs, strict=True):
            if rows is not None:
                data.check_labels(array, rows, name="x", what="indices")
        if self.batch_rows is not None and len(inputs[0]) % self.batch_rows:
            raise ValueError(
                "With a stateful layer the rows must be whole batches of the model's inputs. "
                f"Received: {len(inputs[0])} rows, batches of {self.batch_rows}"
            )

    @property
    def predict_batch_size(self):
        return self.batch_rows or super().predict_batch_size

    @property
    def fit_batch_size(self):
        return self.batch_rows or super().fit_batch_size

    def _check_batch_size(self, batch_size):
        if self.batch_rows not in (None, batch_size):
            raise ValueError(
                "With a stateful layer `batch_size` must be that of the model's inputs, "
                f"{self.batch_rows}. Received: batch_size={batch_size}"
            )

    def _feed(self, inputs, targets, batch_size):
        self._check_batch_size(batch_size)
        return super()._feed(inputs, targets, batch_size)

    def with_variances(self):
        """Returns a model with the same posterior that also takes the variance of each input.

        The two models share layers, noise and standardisation, so each knows what the other learns.

        Returns:
            `TAGIModel` with a mean and a variance (in the user's units squared) for each input of
            this model.

        Raises:
            ValueError: If an input goes to anything but TAGI layers.

        Example:
            >>> inputs = keras.Input((1,))
            >>> outputs = tfp_fnspace.tagi.Dense(1)(inputs)
            >>> model = tfp_fnspace.tagi.TAGIModel(
            ...     inputs, outputs, likelihood=tfp_fnspace.likelihoods.Gaussian(0.3)
            ... )
            >>> history = model.fit(x, y, epochs=2, batch_size=4, verbose=0)
            >>> mean = model.with_variances().predict([x, 0.1 * np.ones_like(x)])["mean"]  # [12, 1]
        """
        self._check_ready()
        network = graph.with_uncertain_inputs(self.network)
        twin = type(self)(
            network.inputs,
            GaussianMoments(*network.outputs),
            likelihood=self.likelihood,
            update=self.update,
            standardize=self.standardize,
        )
        twin.learned_noise = self.learned_noise
        scalers = zip(twin.input_scalers[::2], self.input_scalers, strict=True)
        for new, own in [*scalers, (twin.target_scaler, self.target_scaler)]:
            new.set_weights(own.get_weights())
        return twin
