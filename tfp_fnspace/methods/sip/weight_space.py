"""AVB and AADM, with implicit posteriors of the weights of a network."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import arguments
from tfp_fnspace.layers import networks
from tfp_fnspace.likelihoods import Likelihood
from tfp_fnspace.likelihoods.additive import default_noise
from tfp_fnspace.math.random import as_seed, normal, split
from tfp_fnspace.methods.sip import adversarial, equations, parts
from tfp_fnspace.methods.sip.log_ratio import LogRatio, NormalLogRatio
from tfp_fnspace.methods.sip.options import AdversarialOfWeights
from tfp_fnspace.model import GradientModel
from tfp_fnspace.model.whole_numbers import with_real_inputs
from tfp_fnspace.processes import given_weights
from tfp_fnspace.typing import Array, Config, GaussianMoments, Network, Seed, Tensor

_COUNTS = ("num_noise", "num_samples", "num_eval_samples")


@keras.saving.register_keras_serializable(package="tfp_fnspace.sip")
class AADMModel(GradientModel):
    r"""Adversarial alpha-divergence minimisation, with an implicit posterior of weights.

    All P weights w of a network have independent normal priors N(0, s_i^2), and a posterior from
    which another network g draws, given noise:

        w = s g(e),   e ~ N(0, I_K),   y ~ p(y | f(x; w)).

    Training maximises

        1/alpha sum_n log E_q p(y_n | f(x_n; w))^alpha - KL(q(w) || p(w)),

    which at `alpha=0` is its limit, the evidence lower bound of adversarial variational Bayes
    (equation 1). The divergence is that of the distributions of w / s, estimated by a discriminator
    (equations 2 to 4). In so many dimensions the estimate is far below the truth: the values of g
    lie on a set of K dimensions, so the divergence is infinite for P > K.

    Args:
        network: Keras model from inputs in model units to f, `[N, D]`, or a pair of its symbolic
            inputs and outputs. The model has a copy of it. Its trainable weights are drawn. The
            prior replaces their regularizers and other losses of layers.
        likelihood: A layer of `tfp_fnspace.likelihoods`. The default is Gaussian noise with a
            learned scale for each column of the targets.
        alpha: Number from 0 to 1.
        posterior: `"neural_sampler"`, a network with two hidden layers of 50 units, whose initial
            draws are near the initial weights of `network`. Alternatively a Keras model from `[S,
            K]` of standard normal noise to `[S, P]`, the weights divided by s, one after another in
            the order of `network.trainable_variables`.
        divergence: `AdversarialOfWeights`, the estimate of the divergence. None is its defaults.
        kernel_gain: s of a weight of rank 2 or more is `kernel_gain fan_in^-1/2`, where fan_in is
            the product of all its axes but the last.
        bias_stddev: s of the other weights.
        num_noise: K of the default posterior.
        num_samples: S, the number of draws, in a training step.
        num_eval_samples: S of all predictions.
        standardize: Whether to standardise inputs and targets by the data of the first `fit`; the
            default is true for rows of rank 1.
        seed: Non-negative integer: the same seed gives the same run from the same initial weights.
        **kwargs: `name`, `dtype`.

    Raises:
        TypeError: If `network` or `posterior` is not a Keras model, `likelihood` not a likelihood,
            or `divergence` not an `AdversarialOfWeights`.
        ValueError: If an argument is not as described.

    Example:
        >>> inputs = keras.Input((1,))
        >>> hidden = keras.layers.Dense(50, activation="tanh")(inputs)
        >>> model = AADMModel((inputs, keras.layers.Dense(1)(hidden)), alpha=0.5)
        >>> history = model.fit(x, y, epochs=100)
        >>> f = model.sample_functions(x, 10)  # [10, N, 1]

    References:
        Rodriguez Santana & Hernandez-Lobato (2020), "Adversarial alpha-divergence minimization for
        Bayesian approximate inference", Neurocomputing.
    """

    weights_allowed = "positive"
    noise_outputs_allowed = True
    optimizer_names = adversarial.OPTIMIZER_NAMES
    object_names = ("likelihood", "network", "posterior", "divergence")

    num_noise: int
    num_samples: int
    alpha: float

    def __init__(
        self,
        network: Network | Sequence[Any],
        *,
        likelihood: Likelihood | None = None,
        alpha: float = 0.5,
        posterior: Network | str = "neural_sampler",
        divergence: AdversarialOfWeights | None = None,
        kernel_gain: float = 1.0,
        bias_stddev: float = 1.0,
        num_noise: int = 100,
        num_samples: int = 10,
        num_eval_samples: int = 100,
        standardize: bool | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(autocast=False, **kwargs)
        counts = (num_noise, num_samples, num_eval_samples)
        for name, value in zip(_COUNTS, counts, strict=True):
            setattr(self, name, arguments.checked_count(name, value))
        self.alpha = arguments.checked_fraction("alpha", alpha)
        self.kernel_gain = arguments.checked_positive("kernel_gain", kernel_gain)
        self.bias_stddev = arguments.checked_positive("bias_stddev", bias_stddev)
        self.divergence = AdversarialOfWeights.checked("divergence", divergence)
        parts.check_draws_for_contrast(self.divergence.adaptive_contrast, self.num_samples)
        parts.check_posterior(posterior)
        self._posterior_argument = posterior
        self.network = _copied(network)
        inputs = self.network.inputs
        self._drawn = given_weights.drawn_variables(self.network, inputs[0].shape)
        self._scales = self._prior_scales()
        if likelihood is None:
            likelihood = default_noise(self.variable_dtype)
        num_outputs = self.network.outputs[0].shape[-1]
        if standardize is None:
            standardize = len(inputs[0].shape) == 2
        self.setup(likelihood, standardize, seed)
        self.setup_shapes(inputs, num_outputs)
        self.annealing = parts.annealing(self.divergence.kl_annealing, self.variable_dtype)
        self._build_parts()

    # Parts ------------------------------------------------------------------------------------

    def _prior_scales(self):
        """Returns s, NumPy array `[P]`."""
        scales = [np.full(math.prod(v.shape), self._scale(tuple(v.shape))) for v in self._drawn]
        if not scales:
            raise ValueError(
                "`network` must have trainable weights. Received: network with "
                f"{len(self.network.layers)} layers and none"
            )
        return np.concatenate(scales).astype(self.variable_dtype)

    def _scale(self, shape):
        return given_weights.normal_scale(shape, self.kernel_gain, self.bias_stddev)

    def _build_parts(self):
        """Builds the estimator and the sampler, which starts near the weights of the network."""
        size, dtype = len(self._scales), self.variable_dtype
        _, *seeds = parts.seeds_of(self)
        posterior = self._posterior_argument
        self.posterior = parts.build_posterior(posterior, size, dtype, seeds[0], self.num_noise)
        if isinstance(posterior, str):
            start = np.concatenate([np.ravel(v) for v in self._drawn])
            self.posterior.layers[-1].bias.assign(start / self._scales)
        discriminator = parts.build_discriminator(
            self.divergence.discriminator, size, self.divergence.dropout, dtype, seeds[1]
        )
        cls = NormalLogRatio if self.divergence.adaptive_contrast else LogRatio
        self.log_ratio = cls(discriminator, dtype=dtype)

    def _weight_draws(self, count, seed, training=True):
        """Draws w / s, `[S, P]`."""
        width = self.posterior.input_shape[-1]
        noise = normal([count, width], seed, self.variable_dtype)
        return tf.cast(self.posterior(noise, training=training), self.variable_dtype)

    def _values(self, inputs, draws):
        """Returns values of f, `[S, N, D]`, at draws of w / s; f and inputs are in model units."""
        shapes = [tuple(v.shape) for v in self._drawn]
        flat = tf.split(draws * self._scales, [math.prod(s) for s in shapes], axis=1)
        weights = [
            tf.cast(tf.reshape(w, [-1, *s]), v.dtype)
            for w, s, v in zip(flat, shapes, self._drawn, strict=True)
        ]
        packed = inputs[0]
        if not isinstance(self.network, keras.Sequential):
            packed = keras.tree.pack_sequence_as(self.network.input, inputs)
        values = given_weights.functions(self.network, self._drawn, weights, packed)
        return tf.cast(values, self.variable_dtype)

    # Training ---------------------------------------------------------------------------------

    def trained_parts(self) -> dict[str, list[keras.Variable]]:
        return adversarial.trained_parts(self)

    def callbacks_of_fit(
        self, given: list[keras.callbacks.Callback]
    ) -> list[keras.callbacks.Callback]:
        return [adversarial.AdversarialReport(self.log_ratio, self.divergence_draws)]

    def objective(
        self,
        inputs: list[Tensor],
        targets: Tensor,
        num_rows: Tensor,
        seed: Seed,
        row_weights: Tensor | None = None,
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Computes the losses and the entries of `History`, those of `SIPModel` but `jittered`."""
        seeds = split(seed, 3)
        q, p = self.divergence_draws(seeds[0])
        moments = GaussianMoments(self._values(inputs, q), None)
        log_likelihood = equations.data_energy(
            self.likelihood, moments, targets, self.alpha, seeds[1], row_weights=row_weights
        )
        divergences = self.log_ratio(q, p, seeds[2])
        kl = divergences.forward
        loss = equations.loss(log_likelihood, kl, num_rows, self.annealed())
        history = {"log_likelihood": log_likelihood, "kl_estimate": kl}
        return adversarial.objective(loss, divergences, history)

    def divergence_draws(self, seed: Seed) -> tuple[Tensor, Tensor]:
        """Draws w / s from q and from p, `[S, P]`, as many as a step."""
        seeds = split(seed, 2)
        q = self._weight_draws(self.num_samples, seeds[0])
        return q, normal(tf.shape(q), seeds[1], q.dtype)

    # Prediction -------------------------------------------------------------------------------

    def call(self, inputs: Tensor | list[Tensor]) -> Tensor:
        """Draws f in model units, `[S, N, D]`, for inputs in the user's units."""
        seed = self.counters.seeds.stream("predict")
        return self.functions(self.units.scaled(inputs), self.num_eval_samples, seed)

    def functions(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> Tensor:
        return self._values(inputs, self._weight_draws(num_samples, seed, False))

    def moments(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> GaussianMoments:
        return GaussianMoments(self.functions(inputs, num_samples, seed), None)

    def sample_weights(self, num_samples: int, seed: Seed = (0, 0)) -> list[Array]:
        """Draws the weights from the posterior.

        Args:
            num_samples: S, a positive integer.
            seed: Integer or two integers.

        Returns:
            List of NumPy arrays `[S, ...]`, in the order of the trainable weights of `network`.
        """
        count = arguments.checked_count("num_samples", num_samples)
        draws = self._weight_draws(count, as_seed(seed), False) * self._scales
        shapes = [tuple(v.shape) for v in self._drawn]
        flat = tf.split(draws, [math.prod(s) for s in shapes], axis=1)
        return [tf.reshape(w, [-1, *s]).numpy() for w, s in zip(flat, shapes, strict=True)]

    def numbers_per_row(self, num_samples: int) -> int:
        return num_samples * max(
            math.prod(size or 1 for size in tensor.shape)
            for layer in self.network.layers
            for tensor in keras.tree.flatten(layer.output)
        )

    # Keras ------------------------------------------------------------------------------------

    def get_config(self) -> Config:
        serialize = keras.saving.serialize_keras_object
        posterior = self._posterior_argument
        options = (*_COUNTS, "alpha", "kernel_gain", "bias_stddev", "standardize", "seed")
        return {
            "name": self.name,
            "dtype": self.variable_dtype,
            **{name: getattr(self, name) for name in options},
            "posterior": posterior if isinstance(posterior, str) else serialize(posterior),
            "divergence": serialize(self.divergence),
            "likelihood": serialize(self.likelihood),
            "network": serialize(self.network),
        }


@keras.saving.register_keras_serializable(package="tfp_fnspace.sip")
class AVBModel(AADMModel):
    """Adversarial variational Bayes: `AADMModel` with `alpha=0`.

    Args:
        network, likelihood, posterior, divergence, kernel_gain, bias_stddev, num_noise,
            num_samples, num_eval_samples, standardize, seed, **kwargs: As for `AADMModel`.

    References:
        Mescheder, Nowozin and Geiger (2017), "Adversarial variational Bayes", ICML.
    """

    def __init__(
        self,
        network: Network | Sequence[Any],
        *,
        likelihood: Likelihood | None = None,
        posterior: Network | str = "neural_sampler",
        divergence: AdversarialOfWeights | None = None,
        kernel_gain: float = 1.0,
        bias_stddev: float = 1.0,
        num_noise: int = 100,
        num_samples: int = 10,
        num_eval_samples: int = 100,
        standardize: bool | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(
            network,
            likelihood=likelihood,
            alpha=0.0,
            posterior=posterior,
            divergence=divergence,
            kernel_gain=kernel_gain,
            bias_stddev=bias_stddev,
            num_noise=num_noise,
            num_samples=num_samples,
            num_eval_samples=num_eval_samples,
            standardize=standardize,
            seed=seed,
            **kwargs,
        )

    def get_config(self) -> Config:
        config = super().get_config()
        del config["alpha"]
        return config


def _copied(given: Network | Sequence[Any]) -> Network:
    """Returns a frozen copy of a network, with its weights."""
    network = networks.functional(given)
    if len(network.outputs) != 1 or len(network.outputs[0].shape) != 2:
        shapes = [tuple(tensor.shape) for tensor in network.outputs]
        raise ValueError(
            f"`network` must have one output, [N, D]. Received: outputs of shapes {shapes}"
        )
    network = with_real_inputs(network, lambda layer: False)
    copy = given_weights.frozen_copy(network)
    copy.set_weights(network.get_weights())
    return copy
