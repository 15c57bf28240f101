"""The contract that the models of all methods keep."""

import keras
import numpy as np

from tfp_fnspace import arguments, metrics
from tfp_fnspace.layers.scaler import Standardizer
from tfp_fnspace.math import replicas
from tfp_fnspace.math.random import base_seed
from tfp_fnspace.model.prediction import Prediction
from tfp_fnspace.model.training import Training
from tfp_fnspace.model.turns import Turns
from tfp_fnspace.tracing import traced


class FunctionSpaceModel(Training, Prediction):
    """Mixin of all models: data checks, standardisation, metrics, prediction, export.

    This is a plain class on purpose. Keras rewrites the bases of every *Keras* class above a
    functional model, so a common Keras parent would change its other children.

    A model `class M(FunctionSpaceModel, keras.Model)` calls `keras.Model.__init__`, then `_setup`.
    It implements these methods, in the graph and for inputs in the user's units:

    - `function_moments(x)`: `GaussianMoments` of f in the user's units, `[N, D]`;
    - `predictive(x)`: `tfd.Distribution` of the observations, batch `[N]`, event `[D]`;
    - `draw_functions(x, num_samples, seed)`: function samples `[S, N, D]`;
    - `train_step(data)`, as in Keras.

    The arguments of a model's constructor are in *model* units, which are standardised units if the
    model standardises. Its predictions and scores are in the user's units. Under a likelihood of
    classes, f are logits and the targets are labels, which are not standardised; a classifier
    overrides `predictive_moments`, as `MixturePrediction` does for models with draws.
    """

    #: Dtype in which inputs are standardised; `None` stands for the model's own dtype.
    input_scaler_dtype = None

    #: Whether function draws are differentiable in x, and are the same in every call with the same
    #: seed.
    draws_smooth_functions = True

    #: The model's own steps may call Bayesian layers: it is not a plain Keras model.
    trains_bayesian_layers = True

    #: Entries of the config that are serialised objects.
    _object_names = ("likelihood", "network")

    def _setup(self, input_tensors, num_outputs, likelihood, standardize, seed):
        """Creates scalers, counters and metrics.

        Args:
            input_tensors: Symbolic inputs, a list of `keras.KerasTensor`.
            num_outputs: D.
            likelihood: Observation model, a layer of `tfp_fnspace.likelihoods`.
            standardize: `True`, `False`, or `None` for "if the first input has rank 2".
            seed: Non-negative integer, or `None` for one drawn by NumPy's global generator
                (which `keras.utils.set_random_seed` sets).
        """
        if standardize is None:
            standardize = len(input_tensors[0].shape) == 2
        self._setup_options(likelihood, standardize, seed)
        self._setup_sizes(input_tensors, num_outputs)

    def _setup_options(self, likelihood, standardize, seed):
        """Runs the part of `_setup` that needs no sizes, for models that learn them from the data.

        The model calls `_setup_sizes` when it knows them. Until then it counts as not fitted.
        """
        if isinstance(likelihood, type) or not hasattr(likelihood, "check_outputs"):
            raise TypeError(
                "`likelihood` must be one of `tfp_fnspace.likelihoods`, `Gaussian(0.3)` say"
                f"{arguments.what_it_is(likelihood)}. Received: likelihood={likelihood!r}"
            )
        if likelihood.has_noise_outputs and not self.noise_outputs_allowed:
            raise ValueError(
                f"`likelihood` of a {type(self).__name__} cannot have outputs that describe the "
                "noise: TAGI, SIP and `fbnn.VariationalModel` can. "
                f"Received: likelihood={type(likelihood).__name__}"
            )
        if not isinstance(standardize, bool | np.bool_):
            raise ValueError(
                f"`standardize` must be True, False or None. Received: standardize={standardize!r}"
            )
        self.likelihood = likelihood
        self.standardize = bool(standardize)
        self.input_tensors, self.num_outputs = None, None
        self._setup_counters(seed)
        if likelihood.is_classifier:
            scores = [metrics.Accuracy(), metrics.NLL(), metrics.ExpectedCalibrationError()]
        else:
            coverage = metrics.IntervalCoverage(level=0.9)
            scores = [metrics.RMSE(), metrics.NLL(), metrics.CRPS(), coverage]
        self._default_metrics = scores
        self._user_metrics = []
        vars(self)["_turns"] = Turns()  # hidden from Keras's tracking, so it is not saved
        self._compile_arguments = {}

    def _setup_sizes(self, input_tensors, num_outputs):
        """Creates the scalers (see `_setup`)."""
        self.likelihood.check_outputs(int(num_outputs))
        if not self.likelihood.built:
            self.likelihood.build((None, int(num_outputs)))
        self.input_tensors = list(input_tensors)
        self.num_outputs = int(num_outputs)
        dtype = self.variable_dtype
        none = [None] * len(self.input_tensors)
        self.input_scalers = [
            Standardizer(
                enabled=self.standardize and rows is None and role is None and _is_real(tensor),
                dtype=self.input_scaler_dtype or dtype,
            )
            for tensor, rows, role in zip(
                self.input_tensors,
                self.index_inputs or none,
                self.input_roles or none,
                strict=True,
            )
        ]
        standardize_targets = self.standardize and not self.likelihood.is_classifier
        self.target_scaler = Standardizer(enabled=standardize_targets, dtype=dtype)
        for scaler, tensor in zip(self.input_scalers, self.input_tensors, strict=True):
            scaler.build(tensor.shape)
        self.target_scaler.build((None, self.num_target_columns))
        self._reset_functions()
        self.built = True  # Keras calls `build_from_config` on unbuilt models

    def _reset_functions(self):
        """Drops the traced functions that predict, since they hold the variables of their trace."""
        self.test_function, self.predict_function = None, None
        self._sample_function = traced(self.draw_functions, reduce_retracing=True)

    def _setup_counters(self, seed):
        """Keeps the random state in weights, so that a restored model continues the same run."""
        self.seed = seed
        values = base_seed(np.random.randint(2**31) if seed is None else seed)
        options = {"trainable": False, "initializer": "zeros"}
        self.seed_state = self.add_weight(name="seed", shape=(2,), dtype="int32", **options)
        self.seed_state.assign(values)
        self.epochs_seen = self.add_weight(name="epochs_seen", dtype="int32", **options)
        self.steps_seen = self.add_weight(name="steps_seen", dtype="int64", **options)
        # The counts of steps and epochs at which the current epoch began, its number of steps, and
        # a number for its data. All are zero when no epoch is under way.
        self.epoch_start = self.add_weight(name="epoch_start", shape=(4,), dtype="int64", **options)

    def compile(self, metrics=(), jit_compile="auto", run_eagerly=False, **kwargs):
        """Configures the model.

        Args:
            metrics: Further metrics for `evaluate` and validation, of `tfp_fnspace.metrics` or of
                Keras. Keras's metrics see the predictive mean. For a classifier, binary metrics
                (`AUC`, `Precision`) see the probability of class 1, metrics named `Sparse...` see
                the probabilities of all classes, and metrics of labels see the most probable label.
                Metrics of one-hot targets are refused.
            jit_compile: Whether XLA compiles training and prediction; `"auto"` chooses what is
                faster on the device.
            run_eagerly: Whether to run without graphs, for debugging.
            **kwargs: Further options of the method.

        Raises:
            ValueError: If a metric or an option is unknown.
        """
        arguments.checked_choice("jit_compile", jit_compile, ("auto", True, False))
        self._user_metrics = _checked_metrics(metrics)
        self._check_metrics()
        self._compile_arguments = {"jit_compile": jit_compile, "run_eagerly": run_eagerly, **kwargs}
        keras_arguments = {"optimizer": None, **self._compile_arguments}
        super().compile(loss=None, **keras_arguments)

    def get_compile_config(self):
        config = {**self._compile_arguments, "metrics": self._user_metrics}
        return keras.saving.serialize_keras_object(config)

    def compile_from_config(self, config):
        self.compile(**keras.saving.deserialize_keras_object(config))

    def _ensure_compiled(self):
        if self._distribute_strategy is None and replicas.number() > 1:
            raise ValueError(
                "A model that is used in the scope of a strategy with several replicas must have "
                f"been made there. Received: {type(self).__name__} made outside of the scope"
            )
        if not self.compiled:
            self.compile()

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Makes a model from the result of `get_config`, after its parts that are objects."""
        config = dict(config)
        for name in cls._object_names:
            if name in config:
                config[name] = keras.saving.deserialize_keras_object(
                    config[name], custom_objects=custom_objects
                )
        return cls(**config)


def _checked_metrics(metrics):
    """Returns a list of Keras metrics."""
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
        found += [] if metric is None else [made]
    return found


def _is_real(tensor):
    """Returns whether a tensor can hold standardised values.

    Keras casts the inputs of a model to the dtypes of its input tensors.
    """
    return "float" in keras.backend.standardize_dtype(tensor.dtype)
