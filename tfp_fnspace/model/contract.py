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

    A plain class on purpose: Keras rewrites the bases of every *Keras* class above a functional
    model, so that a common Keras parent would change its other children.

    A model `class M(FunctionSpaceModel, keras.Model)` calls `keras.Model.__init__`, then
    `_setup`, and implements, in the graph and for inputs in the user's units,

    - `function_moments(x)`: `GaussianMoments` of f in the user's units, `[N, D]`;
    - `predictive(x)`: `tfd.Distribution` of the observations, batch `[N]`, event `[D]`;
    - `draw_functions(x, num_samples, seed)`: function samples `[S, N, D]`;
    - `train_step(data)`, as in Keras.

    What a model is constructed with is in *model* units, standardised when it standardises; what
    it predicts and is evaluated on is in the user's. Under a likelihood of classes f are logits
    and the targets are labels, which are not standardised; such a model overrides
    `predictive_moments`, as `MixturePrediction` does for models with draws.
    """

    #: Dtype in which inputs are standardised, the model's own if `None`.
    input_scaler_dtype = None

    #: Whether function draws are differentiable in x, and those of a seed the same in every call.
    draws_smooth_functions = True

    #: Layers of distributions may be called in its own steps: it is no plain Keras model.
    trains_bayesian_layers = True

    #: Entries of the config that are objects of their own.
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
        """The part of `_setup` that needs no sizes, for a model that learns them from the data.

        Such a model calls `_setup_sizes` when it knows them; until then it is not fitted.
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
        vars(self)["_turns"] = Turns()  # past Keras's tracking: it is not saved
        self._compile_arguments = {}

    def _setup_sizes(self, input_tensors, num_outputs):
        """Creates the scalers, see `_setup`."""
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
        self.built = True  # Keras calls `build_from_config` on what is not

    def _reset_functions(self):
        """Traces what predicts anew: it holds the variables that it was traced with."""
        self.test_function, self.predict_function = None, None
        self._sample_function = traced(self.draw_functions, reduce_retracing=True)

    def _setup_counters(self, seed):
        """The random state is in weights, so that a restored model continues the same run."""
        self.seed = seed
        values = base_seed(np.random.randint(2**31) if seed is None else seed)
        options = {"trainable": False, "initializer": "zeros"}
        self.seed_state = self.add_weight(name="seed", shape=(2,), dtype="int32", **options)
        self.seed_state.assign(values)
        self.epochs_seen = self.add_weight(name="epochs_seen", dtype="int32", **options)
        self.steps_seen = self.add_weight(name="steps_seen", dtype="int64", **options)
        # Steps and epochs where an epoch began, its steps, and a number for its data; zeros when no
        # epoch is under way.
        self.epoch_start = self.add_weight(name="epoch_start", shape=(4,), dtype="int64", **options)

    def compile(self, metrics=(), jit_compile="auto", run_eagerly=False, **kwargs):
        """Configures the model.

        Args:
            metrics: Further metrics for `evaluate` and validation: those of
                `tfp_fnspace.metrics`, or Keras's, which then see the predictive mean. Of a
                classifier those of yes or no (`AUC`, `Precision`) see the probability of class 1,
                those named `Sparse...` the probabilities of all classes, and those of labels the
                most probable; those of one-hot targets are refused.
            jit_compile: Whether XLA compiles training and prediction; `"auto"` decides by what
                is faster on the device.
            run_eagerly: Whether to run without graphs, for debugging.
            **kwargs: Of the method.

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
        """A model from the result of `get_config`, whose parts that are objects are made first."""
        config = dict(config)
        for name in cls._object_names:
            if name in config:
                config[name] = keras.saving.deserialize_keras_object(
                    config[name], custom_objects=custom_objects
                )
        return cls(**config)


def _checked_metrics(metrics):
    """A list of Keras metrics."""
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
    """Whether it can hold standardised values; Keras casts what a model is given to its dtype."""
    return "float" in keras.backend.standardize_dtype(tensor.dtype)
