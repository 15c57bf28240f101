"""Prediction of `StableProcessModel` from the stored draws."""

import numpy as np
import tensorflow as tf

from tfp_fnspace import arguments, data
from tfp_fnspace.distributions.quantile import quantile
from tfp_fnspace.methods.stable_process import draws
from tfp_fnspace.tracing import traced

#: Numbers that the widest tensor of a batch of predictions may hold.
_BATCH_NUMBERS = 2**22


def _checked_levels(levels):
    values = np.atleast_1d(data.as_array(levels, "levels").astype(np.float64))
    if values.ndim != 1 or not values.size or not np.all((values > 0.0) & (values < 1.0)):
        raise ValueError(
            "`levels` must lie strictly in (0, 1): a number, or a list of one at least. "
            f"Received: levels={levels!r}"
        )
    return values.tolist()


class StablePrediction:
    """Moments, distributions, quantiles and draws; a plain class, like the contract's mixin."""

    def call(self, inputs):
        """Returns moments of f over the draws in model units, for inputs in the user's units.

        Args:
            inputs: Tensor `[N, I]`.

        Returns:
            `GaussianMoments` of tensors `[N, D]`.
        """
        (x,) = data.check_structure(inputs, self.input_tensors)
        return draws.moments(self, x)

    def function_moments(self, x):
        return self.in_user_units(self(x))

    def function_values(self, x):
        """Returns f for every place of a draw, in the graph, `[N, S, D]` in the user's units."""
        (x,) = data.check_structure(x, self.input_tensors)
        values, _ = draws.function_values(self, x)
        return self.target_scaler.inverse(values)

    def predictive(self, x):
        return draws.predictive(self, self.function_values(x))

    def predictive_moments(self, x):
        return self._summary_of_moments(self.function_moments(x), draws.noise_variance(self))

    def draw_functions(self, x, num_samples, seed):
        (x,) = data.check_structure(x, self.input_tensors)
        return draws.draw_functions(self, x, num_samples, seed)

    def numbers_per_row(self, num_samples):
        return max(self.store.sizes["atoms"], num_samples * self.num_outputs)

    @property
    def served_dtypes(self):
        """float32, which clients send, although `predict` takes arrays in float64.

        An exported model gives the same result at x as `predict(np.float32(x))`. This equals
        `predict(x)` unless a hyperplane is so near to a point that float32 moves the point to the
        other side.
        """
        return ["float32"]

    @property
    def predict_batch_size(self):
        """Rows in a batch, chosen so that the signs of the atoms take some 20 MB."""
        largest = super().predict_batch_size
        if self.store is None:
            return largest
        sizes = self.store.sizes
        widest = max(sizes["atoms"], sizes["outputs"] * sizes["chains"] * sizes["capacity"])
        return int(np.clip(_BATCH_NUMBERS // widest, 1, largest))

    def _reset_functions(self):
        super()._reset_functions()
        options = {"reduce_retracing": True}
        # Keras must not track these, since it would export them.
        vars(self)["_value_function"] = traced(self.function_values, **options)
        vars(self)["_quantile_function"] = traced(
            lambda x, levels: quantile(self.predictive(x), list(levels)), **options
        )

    def _in_chunks(self, function, x):
        """Applies a function to all rows in chunks, so that memory does not grow with them."""
        self._check_ready()
        (array,) = self._check_inputs(x)
        rows = self.predict_batch_size
        parts = [function(tf.constant(array[i : i + rows])) for i in range(0, len(array), rows)]
        return np.concatenate(parts)

    def stored_values(self, x):
        """Returns the values of f in the stored draws at some points.

        Args:
            x: Array `[N, I]` in the user's units.

        Returns:
            NumPy array `[N, S, D]` in the user's units, S = `num_chains` times the number of
            draws stored of each chain; the draws of a chain are in order, beside each other.
        """
        self._check_ready()
        stored = self.store.flat_draws()[2].numpy()
        return self._in_chunks(lambda part: self._value_function(part).numpy()[:, stored], x)

    def posterior_draws(self):
        """Returns stored draws of the hyper-parameters, by chain; fixed values repeat.

        Returns:
            Dict of NumPy arrays `[chains, K, D]`: `noise_scale` in the user's units, `alpha`, and
            `nu` in model units.
        """
        self._check_ready()
        found = {
            name: np.moveaxis(self.store.stored(name), 0, -1)
            for name in ("noise_scale", "alpha", "nu")
        }
        found["noise_scale"] = found["noise_scale"] * self.target_unit.numpy()
        return found

    def predict_distribution(self, x, batch_size=None, joint=False):
        """Returns the predictive distribution of the observations, a mixture over the draws.

        Args:
            x: As for `predict`, arrays only.
            batch_size: Not needed, as for `predict`.
            joint: Whether to return the joint distribution of all points.

        Returns:
            `tfd.MixtureSameFamily` in the user's units, batch `[N]`, event `[D]`; no batch and
            event `[N, D]` if `joint`.
        """
        if batch_size is not None:
            arguments.check_count("batch_size", batch_size)
        values = self._in_chunks(lambda part: self._value_function(part).numpy(), x)
        return draws.predictive(self, tf.constant(values), joint)

    def predict_quantiles(self, x, levels=(0.05, 0.5, 0.95)):
        """Returns quantiles of the observations; the paper's point estimate is the median.

        Args:
            x: As for `predict`, arrays only.
            levels: Levels in (0, 1), Q of them.

        Returns:
            NumPy array `[N, D, Q]` in the user's units.

        Raises:
            TypeError: If the levels or the data are not numbers.
            ValueError: If a level is out of range, or the data are bad.
        """
        levels = tuple(_checked_levels(levels))
        return self._in_chunks(lambda part: self._quantile_function(part, levels).numpy(), x)

    def function_quantiles(self, x, levels=(0.05, 0.5, 0.95)):
        """Returns quantiles of f over the draws; arguments and result as in `predict_quantiles`."""
        levels = _checked_levels(levels)
        self._check_ready()
        stored = self.store.flat_draws()[2].numpy()

        def quantiles(part):
            values = self._value_function(part).numpy()[:, stored]
            return np.moveaxis(np.quantile(values, levels, axis=1), 0, -1)

        return self._in_chunks(quantiles, x)
