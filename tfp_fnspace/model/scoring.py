"""What the verbs of a model that score do: checks, the metrics in a step, and their results."""

from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from tfp_fnspace.boundary import arguments, streams
from tfp_fnspace.callbacks import checked_callbacks
from tfp_fnspace.metrics.of_classes import check_class_metric, for_class_metric
from tfp_fnspace.model import checks
from tfp_fnspace.typing import ArrayLike, Distribution, Rows, Tensor

if TYPE_CHECKING:
    from tfp_fnspace.model.base import FunctionSpaceModel

#: Arguments of `keras.Model.evaluate` that are passed on.
_PASSED_ON = "return_dict", "steps", "callbacks", "_use_cached_eval_dataset"


def evaluate(
    model: "FunctionSpaceModel",
    x: Rows,
    y: ArrayLike | None,
    batch_size: int | None,
    verbose: int | str,
    sample_weight: ArrayLike | None,
    **kwargs: Any,
) -> Any:
    """Scores predictions, see `FunctionSpaceModel.evaluate`."""
    cached = kwargs.get("_use_cached_eval_dataset")  # a validation of `fit`
    arguments.check_verbose(verbose)
    unknown = {name: value for name, value in kwargs.items() if name not in _PASSED_ON}
    arguments.refuse_unknown("evaluate", unknown)
    if not cached:
        checked_callbacks(kwargs.get("callbacks"))
        if kwargs.get("steps") is not None:
            arguments.check_count("steps", kwargs["steps"])
    model.ensure_compiled()
    model.check_ready()
    check_metrics(model)
    stream = None
    if cached:
        pass  # `fit` has checked its validation data
    elif streams.is_stream(x):
        checks.check_no_targets(y, sample_weight=sample_weight)
        checks.check_passes(x, "steps", kwargs.get("steps"))
        stream = model.checked_stream(x)
        x = stream.for_keras()
    else:
        inputs, targets = model.checks.data(x, y)
        row_weights = model.checks.weights(sample_weight, len(targets))
        rows = checks.batch_rows(batch_size, len(targets), model.predict_batch_size)
        x = model.checks.feed(inputs, targets, rows, row_weights)
        y, batch_size = None, None
    with streams.own_errors(stream), model.turns.scoring():
        options: dict[str, Any] = {"batch_size": batch_size, "verbose": verbose, **kwargs}
        scores = keras.Model.evaluate(model, x, y, **options)
    return tf.nest.map_structure(float, scores)  # tensors in older versions of Keras


def evaluate_batch(
    model: "FunctionSpaceModel",
    x: Rows,
    y: ArrayLike | None,
    sample_weight: ArrayLike | None,
    return_dict: bool,
) -> Any:
    """Scores one batch, as `evaluate` does."""
    model.ensure_compiled()
    model.check_ready()
    inputs, targets = model.checks.data(x, y)
    row_weights = model.checks.weights(sample_weight, len(targets))
    if model.distribute_strategy.num_replicas_in_sync > 1:  # Keras gives each the whole batch
        options = {"verbose": 0, "sample_weight": sample_weight, "return_dict": return_dict}
        return model.evaluate(x, y, len(targets), **options)
    with model.turns.scoring():
        batch = model.checks.pack(inputs), targets, row_weights
        model.reset_metrics()  # older versions of Keras add the batch to the last ones
        return keras.Model.test_on_batch(model, *batch, return_dict=return_dict)


def step(model: "FunctionSpaceModel", x: Any, y: Any, row_weights: Tensor | None) -> dict[str, Any]:
    """Updates the metrics by one batch, in the graph; returns their results."""
    y = model.checks.as_columns(y)
    distribution = model.predictive(x)
    weighted = {} if row_weights is None else {"sample_weight": row_weights}
    known = model.likelihood.known_values(y)
    for metric in model.scores:
        of_metric = y if getattr(metric, "takes_limits", False) else known
        whole = getattr(metric, "takes_distribution", False)
        predicted = distribution if whole else _point(model, distribution, metric)
        metric.update_state(of_metric, predicted, **weighted)
    return results(model)


def _point(
    model: "FunctionSpaceModel", distribution: Distribution, metric: keras.metrics.Metric
) -> Tensor:
    """Returns the prediction for a metric that does not take a distribution."""
    if not model.likelihood.is_classifier:
        return distribution.mean()
    probabilities = model.likelihood.probabilities(distribution)
    return for_class_metric(metric, probabilities, model.num_target_columns)


def results(model: "FunctionSpaceModel") -> dict[str, Any]:
    """Returns the results of the metrics by their names, and `loss`."""
    found = {metric.name: metric.result() for metric in model.scores}
    return {"loss": found["nll"], **found}


def check_metrics(model: "FunctionSpaceModel") -> None:
    """Refuses metrics that are meaningless for a classifier whose shapes are known."""
    if not model.has_shapes or not model.likelihood.is_classifier:
        return
    num_classes = model.likelihood.num_labels(model.num_outputs)
    for metric in model.user_metrics:
        check_class_metric(metric, num_classes, model.num_target_columns)
