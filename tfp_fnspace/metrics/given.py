"""The metrics that users give to `compile`."""

from typing import Any

import keras

from tfp_fnspace.boundary import arguments


def checked_metrics(metrics: Any) -> list[keras.metrics.Metric]:
    """Returns a list of Keras metrics.

    Args:
        metrics: A metric or its name, or a list of them.

    Raises:
        ValueError: If one is no metric, or compares no targets with predictions.
    """
    given = list(metrics) if isinstance(metrics, list | tuple) else [metrics]
    found = []
    for metric in given:
        is_old = hasattr(metric, "update_state") and not isinstance(metric, keras.metrics.Metric)
        try:
            made = None if is_old else keras.metrics.get(metric)
        except (TypeError, ValueError):
            made = None
        if metric is not None and not isinstance(made, keras.metrics.Metric):
            raise ValueError(
                "`metrics` must be metrics of `tfp_fnspace.metrics` or of Keras, or Keras's names "
                f"of them{arguments.what_it_is(metric)}. Received: metrics={metrics!r}"
            )
        if type(made) in (keras.metrics.Mean, keras.metrics.Sum):
            raise ValueError(
                "`metrics` must compare targets with predictions. "
                f"Received: metric {type(made).__name__}"
            )
        found += [] if metric is None else [made]
    return found
