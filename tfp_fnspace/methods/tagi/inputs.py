"""What a TAGI model demands of its inputs."""

import numpy as np

from tfp_fnspace import data


class TAGIInputs:
    """Part of `TAGIModel`: inputs that are variances or indices, and rows with a state."""

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
