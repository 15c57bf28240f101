"""Models that learn the shapes of inputs and targets from the first data."""

import keras
import numpy as np

from tfp_fnspace import data


class LearnsSizes:
    """Mixin of models that are constructed without sizes; comes before the contract.

    A model calls `_setup_options` when it is made and `_learn_sizes` before the contract's `fit`
    and `adapt`; until then it is not fitted.
    """

    #: Dtype of the inputs, the model's own if `None`.
    input_dtype = None

    def _first_tensor(self, shape):
        """The symbolic input for rows of a shape."""
        dtype = self.input_dtype or self.variable_dtype
        return keras.KerasTensor((None, *shape), dtype=dtype, name="x")

    def _row_shape(self, array):
        """The shape of a row of the first inputs."""
        return array.shape[1:] if array.ndim > 1 else (1,)

    def _setup_for(self, input_shape, num_columns, num_rows):
        """Creates what needs sizes, ends in `_setup_sizes`.

        Args:
            input_shape: Shape of a row.
            num_columns: Columns of the targets.
            num_rows: Rows of the first data; of a stream, of its first batch.
        """
        raise NotImplementedError

    def _check_first_data(self, x, y):
        """Checked arrays `[N, ...]` and `[N, D]` of whatever widths they have."""
        shape = self._row_shape(data.as_array(x, "x"))
        (inputs,) = data.check_inputs(x, [self._first_tensor(shape)])
        columns = np.shape(y)[1] if np.ndim(y) == 2 else 1
        targets = data.check_targets(y, len(inputs), columns, False, self.variable_dtype)
        if not columns:
            raise ValueError(
                f"`y` must have at least one column. Received: y of shape {targets.shape}"
            )
        return inputs, targets

    def _learn_sizes(self, x, y):
        """Takes the sizes from the first data, arrays or batches."""
        if self.input_tensors is not None:
            return x
        first = (x, y)
        if data.is_stream(x):
            batch, x = data.first_batch(x)
            first = batch[:2]
        inputs, targets = self._check_first_data(*first)
        self._setup_for(inputs.shape[1:], targets.shape[1], len(inputs))
        return x
