"""Models that learn the shapes of inputs and targets from the first data."""

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import data, interrupts, notices, streams
from tfp_fnspace.math.random import permutation
from tfp_fnspace.math.selection import greedy_rows
from tfp_fnspace.model.turns import one_thread_at_a_time
from tfp_fnspace.streams import first_batches

#: How inducing points may be placed at rows, and the most rows that the greedy choice sees.
INDUCING_INITS = ("random", "greedy")
_MOST_CANDIDATES = 10_000


class LearnsSizes:
    """Mixin of models that are constructed without sizes; it comes before the contract.

    A model calls `_setup_options` when it is made. It calls `_learn_sizes` before the contract's
    `fit` and `adapt`; until then it counts as not fitted.
    """

    #: Dtype of the inputs; `None` stands for the model's own dtype.
    input_dtype = None

    def _first_tensor(self, shape):
        """Returns the symbolic input for rows of a shape."""
        dtype = self.input_dtype or self.variable_dtype
        return keras.KerasTensor((None, *shape), dtype=dtype, name="x")

    def _row_shape(self, array):
        """Returns the shape of a row of the first inputs."""
        return array.shape[1:] if array.ndim > 1 else (1,)

    def _setup_for(self, input_shape, num_columns, num_rows):
        """Creates the parts that need sizes; calls `_setup_sizes` at the end.

        Args:
            input_shape: Shape of a row.
            num_columns: Columns of the targets.
            num_rows: Number of rows of the first data; for a stream, of the batches that were read.
        """
        raise NotImplementedError

    def _check_first_data(self, x, y):
        """Checks the first data and returns arrays `[N, ...]` and `[N, D]` of any widths."""
        shape = self._row_shape(data.as_array(x, "x"))
        (inputs,) = data.check_inputs(x, [self._first_tensor(shape)], standardized=[True])
        targets = data.as_array(y, "y", labels=self.likelihood.is_classifier)
        has_rows = targets.ndim == 2 and len(targets) == len(inputs)
        columns = targets.shape[1] if has_rows else 1
        if not columns:
            raise ValueError(
                f"`y` must have at least one column. Received: y of shape {targets.shape}"
            )
        num_labels = None
        if self.likelihood.is_classifier and self.likelihood.num_target_columns(columns) < columns:
            columns, num_labels = 1, columns  # one-hot labels, or bad ones
        options = {"dtype": "float64", "num_labels": num_labels}
        return inputs, data.check_targets(y, len(inputs), columns, False, **options)

    def _learn_sizes(self, x, y, num_rows=1, held_out=0.0):
        """Takes the sizes from the first data: arrays, or batches with `num_rows` rows in total.

        Args:
            x: Inputs, or a stream.
            y: Targets, for arrays.
            num_rows: Number of rows to read, for a stream.
            held_out: Fraction of the rows of arrays that is held out from training.

        Returns:
            x. For a stream, one that still yields the batches that were read.
        """
        if self.input_tensors is not None:
            return x
        parts = [(x, y)]
        is_stream = streams.is_stream(x)
        if is_stream:
            with streams.own_errors():
                parts, x = first_batches(x, num_rows)
        parts = [self._check_first_data(*part) for part in parts]
        inputs, targets = parts[0]
        num_rows = sum(len(part[0]) for part in parts)
        if held_out and not is_stream:
            num_rows = len(data.split_rows([inputs], held_out)[0][0])
        # Weights made here belong to the strategy that the model was made in.
        with self.distribute_strategy.scope(), interrupts.held():
            self._setup_for(inputs.shape[1:], targets.shape[1], num_rows)
        return x


class StartsAtRows(LearnsSizes):
    """`LearnsSizes` for models whose inducing points start at rows of the first data.

    A model has the attribute `inducing_points`, the largest number of them. It calls
    `_num_inducing` when the sizes are known and `_starting_rows` in `prepare_training`. It may let
    the user set `inducing_init`.
    """

    inducing_init = "random"

    @one_thread_at_a_time
    def adapt(self, x, y=None):
        """Sets the standardisation from data; `fit` does so by itself the first time."""
        super().adapt(self._learn_sizes(x, y, self.inducing_points), y)

    @one_thread_at_a_time
    def fit(
        self,
        x=None,
        y=None,
        batch_size=None,
        epochs=1,
        verbose="auto",
        callbacks=None,
        validation_split=0.0,
        validation_data=None,
        **kwargs,
    ):
        """Fits the model; arguments and result are as in `FunctionSpaceModel.fit`.

        Each class documents its entries of `History`.
        """
        held_out = validation_split if validation_data is None else 0.0
        x = self._learn_sizes(x, y, self.inducing_points, held_out)
        validation = {"validation_split": validation_split, "validation_data": validation_data}
        return super().fit(x, y, batch_size, epochs, verbose, callbacks, **validation, **kwargs)

    def _num_inducing(self, num_rows):
        """Returns the number of inducing points for first data with `num_rows` rows."""
        if num_rows >= self.inducing_points:
            return self.inducing_points
        notices.warn(
            f"The first data have {num_rows} rows: the model takes as many inducing points "
            f"instead of {self.inducing_points}.",
        )
        return num_rows

    def _starting_rows(self, inputs, count):
        """Returns the indices of the rows at which the inducing points start, `[count]` in order.

        Args:
            inputs: Array `[N, ...]` of the first rows, in the user's units.
            count: Number of inducing points.

        Raises:
            ValueError: If there are fewer rows than inducing points.
        """
        order = self._row_order(inputs, count)
        if self.inducing_init == "greedy":
            order = order[: max(count, _MOST_CANDIDATES)]
            (x,) = self.scaled([tf.constant(inputs[order])])
            order = order[greedy_rows(tf.reshape(x, [len(order), -1]), count)]
        return np.sort(order[:count])

    def _rows_of_a_fit(self, inputs, targets, count):
        """Returns random rows in the order in which an initialisation should use them, best first.

        Rows with new inputs come first, then rows that repeat inputs with other targets. Copies of
        whole rows come last.

        Args:
            inputs: As for `_starting_rows`.
            targets: Array `[N, D]`.
            count: The least number of rows.

        Returns:
            Indices of at most 10,000 rows (or `count`, if that is more), and the number of those
            that are not copies.

        Raises:
            ValueError: If there are fewer rows than `count`.
        """
        order = self._row_order(inputs, count)[: max(count, _MOST_CANDIDATES)]
        x = inputs[order].reshape([len(order), -1]).astype("float64")
        y = targets[order].reshape([len(order), -1])
        new_x, new_row = (
            np.unique(rows, axis=0, return_index=True)[1] for rows in (x, np.hstack([x, y]))
        )
        rank = np.full(len(order), 2)
        rank[new_row], rank[new_x] = 1, 0
        return order[np.argsort(rank, kind="stable")], len(np.union1d(new_x, new_row))

    def _row_order(self, inputs, count):
        """Returns the rows in a random order that follows from the seed."""
        num_rows = len(inputs)
        if num_rows < count:
            raise ValueError(
                "The first data must have at least as many rows as the model has inducing points, "
                f"{count}. Received: {num_rows} rows"
            )
        return permutation(self.seed_state.numpy(), -1 % 2**31, num_rows)
