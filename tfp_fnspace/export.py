"""SavedModels that plain TensorFlow serves."""

import keras
import tensorflow as tf

from tfp_fnspace.distributions.quantile import quantile

#: Levels of the quantiles that `serve` returns.
QUANTILE_LEVELS = (0.05, 0.5, 0.95)


def export_saved_model(model, path, num_samples=100, verbose=False):
    """Writes a SavedModel that loads where neither this library nor Keras is installed.

    Endpoints:

    - `serve(x)` (also `serving_default`): dict of `mean`, `stddev`, `epistemic_stddev`,
      `aleatoric_stddev`, each `[N, D]`, and `quantiles` `[N, D, 3]` at 5, 50 and 95 %.
    - `sample(x, seed)`: function samples `[S, N, D]`; `seed` is an int32 tensor `[2]`.

    A model with several inputs takes them as separate arguments, before the seed. Everything is
    in the user's units.

    Args:
        model: Fitted `FunctionSpaceModel`.
        path: Folder to write.
        num_samples: S, the number of functions that `sample` draws.
        verbose: Whether Keras prints the endpoints.

    Raises:
        ValueError: If `num_samples` is not a positive integer.
    """
    if isinstance(num_samples, bool) or int(num_samples) != num_samples or num_samples < 1:
        raise ValueError(
            f"`num_samples` must be a positive integer. Received: num_samples={num_samples!r}"
        )
    specs = [
        tf.TensorSpec((None, *tensor.shape[1:]), tensor.dtype, name=tensor.name)
        for tensor in model.input_tensors
    ]

    def serve(*inputs):
        x = inputs[0] if len(inputs) == 1 else list(inputs)
        quantiles = quantile(model.predictive(x), list(QUANTILE_LEVELS))
        return {**model.predictive_moments(x), "quantiles": quantiles}

    def sample(*inputs):
        *inputs, seed = inputs
        x = inputs[0] if len(inputs) == 1 else inputs
        return model.draw_functions(x, int(num_samples), seed)

    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serve", serve, input_signature=specs)
    seed_spec = tf.TensorSpec([2], tf.int32, name="seed")
    archive.add_endpoint("sample", sample, input_signature=[*specs, seed_spec])
    archive.write_out(str(path), verbose=verbose)
