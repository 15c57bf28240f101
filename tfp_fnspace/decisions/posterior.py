"""The posterior of a model as the acquisition functions of TensorFlow Probability take it."""

import tensorflow as tf

from tfp_fnspace.boundary import arguments, arrays, data
from tfp_fnspace.math.random import as_seed
from tfp_fnspace.model import FunctionSpaceModel
from tfp_fnspace.typing import ArrayLike, Seed, Tensor


class FunctionPosterior:
    """The posterior of a function at index points, for `tfp.experimental.bayesopt.acquisition`.

    The function is f, or `E[y | f]` if the likelihood has a link. An instance takes the place of a
    `tfd.GaussianProcessRegressionModel` without noise: acquisition functions of single points
    (`GaussianProcess...`) call `mean` and `stddev` and take f for Gaussian; those of several points
    (`Parallel...`) call `sample`, which draws functions. All three are differentiable in the index
    points if the functions of the model are, which those of a stable process are not.

    Acquisition functions look for a maximum. For a minimum, fit the model to the negative of the
    targets. `GaussianProcessMaxValueEntropySearch` looks for it in the unit cube; `suggest` has the
    same acquisition function for any box, with the noise of the model.

    Args:
        model: Fitted regression with one input `[N, X]`.
        index_points: Array `[..., N, X]` in the user's units, the points of all methods that are
            given no others. Leading axes are for sets of points.
        output: Number of the output that is looked at.

    Attributes:
        index_points: float64 tensor `[..., N, X]`.
        dtype: Dtype of the results, float64.

    Raises:
        TypeError: If the model is none, or the points are not numbers.
        ValueError: If the model is not such a regression or not fitted, it has no such output, or
            the points are of another shape or not finite.
    """

    dtype = tf.float64

    def __init__(self, model: FunctionSpaceModel, index_points: ArrayLike, output: int = 0):
        arguments.check_model(model, "draw_functions")
        model.check_ready()
        shapes = [tuple(tensor.shape) for tensor in model.input_tensors]
        if model.likelihood.is_classifier or len(shapes) != 1 or len(shapes[0]) != 2:
            raise ValueError(
                "`model` must be a regression with one input of shape (N, X). Received: inputs of "
                f"shapes {shapes} and the likelihood {type(model.likelihood).__name__}"
            )
        arguments.check_count("output", output, least=0)
        if output >= model.num_target_columns:
            raise ValueError(
                f"`output` must be less than the {model.num_target_columns} outputs of the model. "
                f"Received: output={output}"
            )
        self.model, self.output = model, int(output)
        points = arrays.as_array(index_points, "index_points")
        data.check_finite("index_points", points)
        self.index_points = self._points(points)

    def mean(self, index_points: ArrayLike | None = None) -> Tensor:
        """Returns the mean of the function.

        Args:
            index_points: Tensor `[..., N, X]`, by default those of the constructor.

        Returns:
            float64 tensor `[..., N]`.

        Raises:
            ValueError: If the points are of another shape.
        """
        return self._moment("mean", index_points)

    def stddev(self, index_points: ArrayLike | None = None) -> Tensor:
        """Returns the standard deviation of the function; see `mean`."""
        return self._moment("epistemic_stddev", index_points)

    def sample(
        self, sample_shape: int, seed: Seed = 0, index_points: ArrayLike | None = None
    ) -> Tensor:
        """Draws functions.

        Args:
            sample_shape: S, the number of functions.
            seed: Integer or two integers. The same seed gives the same functions at any points,
                unless the model `draws_jointly`.
            index_points: As for `mean`.

        Returns:
            float64 tensor `[S, ..., N]`.

        Raises:
            ValueError: As for `mean`, or if the number is not a positive integer.
        """
        count = arguments.checked_count("sample_shape", sample_shape)
        points = self._points(index_points)
        draw = self.model.traced(self.model.draw_functions)
        functions = draw(self._rows(points), count, as_seed(seed))
        if self.model.likelihood.has_link:
            functions = self.model.likelihood.mean(functions)
        return self._of_points(functions, points)

    def _moment(self, name, index_points):
        points = self._points(index_points)
        found = self.model.traced(self.model.predictive_moments)(self._rows(points))
        return self._of_points(found[name], points)

    def _points(self, index_points):
        """Returns points as a float64 tensor."""
        if index_points is None:
            return self.index_points
        points = tf.cast(tf.convert_to_tensor(index_points), self.dtype)
        width = self.model.input_tensors[0].shape[1]
        if points.shape.rank is None or points.shape.rank < 2 or points.shape[-1] != width:
            raise ValueError(
                f"`index_points` must have shape (..., N, {width}). "
                f"Received: index_points of shape {points.shape}"
            )
        return points

    def _rows(self, points):
        """Returns what the model takes, `[..., N, X]` as one batch of rows."""
        rows = tf.reshape(points, [-1, points.shape[-1]])
        (in_users_units,) = self.model.units.in_users_units
        dtype = self.dtype if in_users_units else self.model.input_tensors[0].dtype
        return self.model.checks.pack([tf.cast(rows, dtype)])

    def _of_points(self, values, points):
        """Returns an output `[S, ..., N]` or `[..., N]` of values `[S, rows, D]` or `[rows, D]`."""
        chosen = tf.cast(values[..., self.output], self.dtype)
        return tf.reshape(chosen, tf.concat([tf.shape(chosen)[:-1], tf.shape(points)[:-1]], 0))
