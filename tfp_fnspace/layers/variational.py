"""The base class of layers whose weights are drawn once for each function."""

import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from tfp_fnspace.boundary import arguments
from tfp_fnspace.boundary.arguments import refuse_old_tensors
from tfp_fnspace.layers import calls, posteriors
from tfp_fnspace.layers.draws import FunctionDraws, current_draws, draws_of_scope
from tfp_fnspace.layers.posterior_base import Posterior
from tfp_fnspace.layers.weight_priors import WeightPriors
from tfp_fnspace.math import replicas
from tfp_fnspace.math.random import fast_normal, fold_in
from tfp_fnspace.typing import Config, Distribution, Shape, Tensor

#: Draws -> id of a layer -> what the layer drew. Entries live as long as the draws.
_drawn = weakref.WeakKeyDictionary()

#: Keras's context of a pass through a model -> id of a layer -> its draws.
_draws_of_passes = weakref.WeakKeyDictionary()

#: An `activation=` of Keras.
ActivationFunction: TypeAlias = str | Callable[[Tensor], Tensor] | None

#: Keeps the square root of a variance differentiable at inputs of 0.
_TINY = 1e-20


def _checked_activation(activation):
    """Returns the function of an activation of Keras."""
    function: Any = None
    try:
        is_known = not isinstance(activation, type)
        function = keras.activations.get(activation) if is_known else None
    except (TypeError, ValueError):
        is_known = False
    if not is_known:
        raise ValueError(
            "`activation` must be a function, or the name of one in `keras.activations`"
            f"{arguments.what_it_is(activation)}. Received: activation={activation!r}"
        )
    return function


class VariationalLayer(WeightPriors, keras.layers.Layer):
    r"""Base of layers with an approximate posterior over their weights.

    All inputs share one draw of the weights for each function sample. Within a `function_draws`
    scope of S draws the layer maps inputs `[N, ...]`, or `[S, N, ...]` behind another random layer,
    to outputs `[S, N, ...]`. All calls of one layer in one scope use the same weights, and its
    divergence from the prior counts once. Outside a scope S is 1.

    With a `kl_weight` the layer belongs to a plain Keras model. Outside a scope it then maps `[N,
    ...]` to `[N, ...]` and draws its weights again for each pass through the model. Once in each
    pass it adds `kl_weight` times the divergence to the losses of the model (`add_loss`). The loss
    of `compile` is a mean over rows. If it is a negative log-likelihood, `kl_weight=1 / N`, with N
    the number of rows given to `fit`, makes the sum the negative evidence lower bound per row. For
    `"mse"` of observations whose noise has standard deviation s, use `2 s^2 / N`. Without a
    `kl_weight` the layer refuses to be trained by Keras itself, which would leave the divergence
    out. Inside a scope, as in all models of this library, `kl_weight` has no effect.

    `estimator` says how outputs are drawn if the scope does not need functions
    (`noise="independent"`, as for the expected log-likelihood of a training step). Predictions
    always use functions.

    - `"function"`: one draw of all weights for each function, so that its outputs are coherent.
    - `"local_reparameterization"`: outputs from their marginal distribution, drawn separately for
      each input. Gradients have the least variance, but the outputs at two inputs, or of two calls,
      no longer belong to one function. It requires independent Gaussian weights.
    - `"flipout"`: one deviation of the weights for all functions, with random signs on inputs and
      outputs for each function and row. The marginal distributions are those of `"function"`. Rows
      belong to no common function, and draws are uncorrelated but not independent. Fewer normals
      are drawn. It requires deviations whose distribution does not depend on their signs.

    Args:
        posterior: `"factorized"`, `"full"`, `"conditioned"`, `"low_rank"`, `"radial"`, or an
            instance of those in `layers.posteriors`.
        prior: Distribution of one weight: a `tfd.Distribution`, or a rule for the standard
            deviation of a Gaussian with mean 0. `"fan_in"` is `fan_in^-1/2`, with which the
            variance of a function does not depend on the width. `"he"` is `(2 / fan_in)^1/2`, and
            `"glorot"` is `(2 / (fan_in + fan_out))^1/2`. `"standard"` is 1, the spherical prior of
            the weight-space baselines of Sun et al. (2019). Under `"relevance"`, automatic
            relevance determination, the standard deviation is learnt: all weights that multiply one
            input of the layer share one (all weights of an embedding share one). It is the one with
            the least divergence, so that useless inputs and units cost nothing. `"start"` is the
            same around the weights that the layer starts with (those that `from_keras` was given),
            with a standard deviation of at least a fifth of their root mean square. By default the
            model chooses: `VariationalModel` uses `"relevance"`, all other models use `"fan_in"`.
        bias_prior: The same for biases, without `"relevance"`. The default is `prior` if that is a
            distribution or `"start"`, else the standard normal distribution.
        activation: As in Keras, applied entry by entry.
        use_bias: Whether there is a bias.
        estimator: See above.
        kernel_initializer: Keras initializer of the posterior means.
        bias_initializer: The same for the bias.
        kl_weight: Factor of the divergence in the loss of a plain Keras model, a number from 0.
            None, the default, is for models of this library.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        training: Whether Keras trains the layer. Outside a scope it then draws as `estimator` says;
            otherwise it draws one function for all rows.

    Attributes:
        posterior: `Posterior`; after `build` its `means` are the variables by part.

    Raises:
        TypeError: If an argument is of a wrong type.
        ValueError: If an argument is none of the above, or if `kl_weight` is None in `fit`,
            `evaluate` or `predict` of a plain Keras model.

    References:
        Kingma, Salimans & Welling (2015), "Variational dropout and the local reparameterization
        trick", NeurIPS. Wen et al. (2018), "Flipout: efficient pseudo-independent weight
        perturbations on mini-batches", ICLR. Sun et al. (2019), "Functional variational Bayesian
        neural networks", ICLR. MacKay (1994), "Bayesian nonlinear modeling for the prediction
        competition", ASHRAE Transactions 100 (automatic relevance determination).
    """

    #: Estimators that the layer supports.
    estimators = ("function",)
    #: Whether the outputs of a step depend on no other step, so that a mask may be passed on.
    heeds_masks = False
    #: Whether inputs are integers that select weights.
    takes_indices = False
    #: The part of the weights that multiplies inputs.
    kernel_name = "kernel"

    def __init__(
        self,
        *,
        posterior: str | Config | Posterior = "factorized",
        prior: str | Config | Distribution | None = None,
        bias_prior: str | Config | Distribution | None = None,
        activation: ActivationFunction = None,
        use_bias: bool = True,
        estimator: str = "function",
        kernel_initializer: Any = "lecun_normal",
        bias_initializer: Any = "zeros",
        kl_weight: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.kl_weight = kl_weight
        if kl_weight is not None:
            self.kl_weight = arguments.checked_number("kl_weight", kl_weight, 0.0, inclusive=True)
            self.seed_generator = keras.random.SeedGenerator()
        self.posterior = posteriors.get(posterior)
        self._take_priors(prior, bias_prior)
        self.activation = _checked_activation(activation)
        self.use_bias = bool(use_bias)
        self.estimator = self._checked_estimator(estimator)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        refuse_old_tensors(args)
        calls.refuse_moments(self, args[0] if args else None)
        if not self.heeds_masks:
            calls.refuse_masks(self, (args, kwargs), "VariationalDense of sequences does.")
        return super().__call__(*args, **kwargs)

    def _checked_estimator(self, estimator):
        if estimator not in self.estimators:
            raise ValueError(
                f"`estimator` of {type(self).__name__} must be one of {self.estimators}. "
                f"Received: estimator={estimator!r}"
            )
        needs = {"local_reparameterization": "is_factorized", "flipout": "is_symmetric"}
        if estimator in needs and not getattr(self.posterior, needs[estimator]):
            raise ValueError(
                f"`estimator={estimator!r}` does not suit this posterior. "
                f"Received: posterior={type(self.posterior).__name__}"
            )
        return estimator

    # For subclasses ---------------------------------------------------------------------------

    #: Rank of the inputs of one row.
    row_rank = 1

    def has_draws(self, input_shape: Shape) -> bool:
        """Returns whether inputs of a shape have an axis of draws."""
        return len(input_shape) == self.row_rank + 2

    def kernel_shape(self, input_shape: Shape) -> tuple[int, ...]:
        """Returns the shape of the kernel for the shape of the inputs."""
        raise NotImplementedError

    def fans(self, kernel_shape: tuple[int, ...]) -> tuple[int, int]:
        """Returns the number of inputs that a unit sums over, and of units that use an input."""
        raise NotImplementedError

    def map_each(self, x: Tensor, kernel: Tensor) -> Tensor:
        """Applies the linear map with a kernel for each draw.

        Args:
            x: Tensor `[N, ...]` or `[S, N, ...]`.
            kernel: Tensor `[S, *kernel_shape]`.

        Returns:
            Tensor `[S, N, ..., units]`.
        """
        raise NotImplementedError

    def map_all(self, x: Tensor, kernel: Tensor) -> Tensor:
        """Applies the linear map with one kernel.

        Args:
            x: Tensor `[N, ...]` or `[S, N, ...]`.
            kernel: Tensor `[*kernel_shape]`.

        Returns:
            Tensor `[N, ..., units]` or `[S, N, ..., units]`.
        """
        raise NotImplementedError

    # Keras ------------------------------------------------------------------------------------

    def build(self, input_shape: Shape) -> None:
        self._check_rank(input_shape)
        shape = tuple(self.kernel_shape(input_shape))
        self._fans = self.fans(shape)
        shapes = {self.kernel_name: shape}
        initializers = {self.kernel_name: self.kernel_initializer}
        if self.use_bias:
            shapes["bias"], initializers["bias"] = (shape[-1],), self.bias_initializer
        self.posterior.build(self, shapes, initializers, self._fans[0])
        self._build_start()

    def _check_rank(self, input_shape):
        if len(input_shape) not in (self.row_rank + 1, self.row_rank + 2):
            raise ValueError(
                f"{type(self).__name__} takes rows of rank {self.row_rank}, inputs [N, ...] or "
                f"[S, N, ...] of draws. Received: input_shape={tuple(input_shape)}"
            )

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        x = tf.convert_to_tensor(inputs)
        if not x.dtype.is_floating and not self.takes_indices:
            x = tf.cast(x, self.compute_dtype)  # as `keras.layers.Dense` does
        self._check_rank(x.shape)
        draws = draws_of_scope()
        is_plain = self.kl_weight is not None or training is not None
        if draws is None and (is_plain or calls.plain_keras_model() is not None):
            return self._outputs_of_pass(x, training)
        return self._outputs(current_draws() if draws is None else draws, x)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Returns the mask of the rows, `[N, T]`, which holds for all draws."""
        return previous_mask

    def _outputs(self, draws, x):
        """Returns outputs `[S, N, ...]`."""
        estimator = self.estimator if draws.noise == "independent" else "function"
        if estimator == "local_reparameterization":
            outputs = self._from_marginals(draws, x)
        elif estimator == "flipout":
            outputs = self._with_signs(draws, x)
        else:
            weights = self._once(draws, lambda: self._drawn_weights(draws, draws.num_samples))
            outputs = self.map_each(x, self._cast(weights[self.kernel_name]))
            if self.use_bias:
                outputs += self._aligned(self._cast(weights["bias"]), outputs)
        return self.activation(tf.cast(outputs, self.compute_dtype))

    def _outputs_of_pass(self, x, training):
        """Returns outputs `[N, ...]` in a plain Keras model; a pass adds the loss once."""
        if self.kl_weight is None:
            raise ValueError(
                "A variational layer needs `kl_weight` in the `fit`, `evaluate` and `predict` of a "
                "plain Keras model, else its divergence would not be part of the loss: pass "
                "`kl_weight=1 / len(x)` for a loss that is a negative log-likelihood per row, or "
                "train the network by `fns.fbnn.VariationalModel`, which needs none. "
                f"Received: layer {self.name!r} with kl_weight=None"
            )
        kept = _draws_of_passes.setdefault(self._get_call_context(), {})
        is_first = id(self) not in kept
        if is_first:
            seed = tf.bitcast(tf.cast(self.seed_generator.next(), tf.uint32), tf.int32)
            kept[id(self)] = FunctionDraws(1, seed, "independent" if training else "joint")
        draws = kept[id(self)]
        outputs = self._outputs(draws, x)
        if is_first:
            self.add_loss(self.kl_weight * draws.kl(self.variable_dtype))
        return outputs if self.has_draws(x.shape) else tf.squeeze(outputs, axis=0)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        self._check_rank(input_shape)
        draws = tuple(input_shape)[: self.has_draws(input_shape)]
        rows = tuple(input_shape)[len(draws) :]
        if not draws and self.kl_weight is None:
            draws = (None,)
        return (*draws, rows[0], *self.row_output_shape(rows[1:]))

    def row_output_shape(self, row_shape: Shape) -> Shape:
        """Returns the shape of the outputs of one row."""
        raise NotImplementedError

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "posterior": keras.saving.serialize_keras_object(self.posterior),
            **self._prior_config(),
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "estimator": self.estimator,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kl_weight": self.kl_weight,
        }

    # Draws ------------------------------------------------------------------------------------

    def _once(self, draws, make):
        """Returns the result of `make`, which is called once for these draws."""
        kept = _drawn.setdefault(draws, {})
        if id(self) not in kept:
            kept[id(self)] = make()
        return kept[id(self)]

    def take_weights(self, draws: FunctionDraws, weights: dict[str, Tensor]) -> None:
        """Makes all calls of the layer for these draws use given weights.

        Args:
            draws: The `FunctionDraws` of a scope in which the layer was not called yet.
            weights: Dict of tensors `[S, *shape]` by part, as `Posterior.sample` returns them.
        """
        self._once(draws, lambda: weights)

    def _drawn_weights(self, draws, num_samples):
        """Draws weights and reports their divergence."""
        weights = self.posterior.sample(draws.next_seed(), num_samples)
        priors = self.weight_priors(draws.prior)
        draws.add_divergence(self.posterior.kl(priors, lambda: weights))
        return weights

    def _cast(self, weights):
        return tf.cast(weights, self.compute_dtype)

    def _aligned(self, bias, outputs):
        """Reshapes a bias `[S, units]` so that it broadcasts to outputs `[S, N, ..., units]`."""
        middle = [1] * (len(outputs.shape) - 2)
        return tf.reshape(bias, [-1, *middle, bias.shape[-1]])

    def _mean(self, x):
        """Returns the outputs at the posterior means, `[N, ...]` or `[S, N, ...]`."""
        dtype = x.dtype if x.dtype.is_floating else self.variable_dtype
        values = self.posterior.mean_values()
        means = {name: tf.cast(mean, dtype) for name, mean in values.items()}
        outputs = self.map_all(x, means[self.kernel_name])
        return outputs + means["bias"] if self.use_bias else outputs

    def _variance(self, x):
        """Returns the variance of the outputs given the inputs, like `_mean`."""
        variances = self.posterior.variances()
        x = tf.square(x) if x.dtype.is_floating else x  # indices select a variance
        outputs = self.map_all(x, variances[self.kernel_name])
        return outputs + variances["bias"] if self.use_bias else outputs

    def _from_marginals(self, draws, x):
        def report():
            seed, count = draws.next_seed(), draws.num_samples
            sample = _lazily(lambda: self.posterior.sample(seed, count))
            draws.add_divergence(self.posterior.kl(self.weight_priors(draws.prior), sample))
            return ()

        self._once(draws, report)
        if x.dtype.is_floating:
            x = tf.cast(x, self.variable_dtype)  # variances are small for half precision
        mean, variance = self._mean(x), self._variance(x)
        stddev = tf.sqrt(variance + _TINY)
        samples, count, *rest = self._shape_with_samples(draws, mean, x)
        seed = draws.next_seed()
        noise = replicas.of_all_rows(
            lambda rows: fast_normal([samples, rows, *rest], seed, mean.dtype), count, axis=1
        )
        return mean + stddev * noise

    def _with_signs(self, draws, x):
        def one_deviation():
            seed = draws.next_seed()
            deviation = self.posterior.deviations(seed, 1)
            means = self.posterior.mean_values()
            sample = _lazily(lambda: {k: means[k] + d for k, d in deviation.items()})
            draws.add_divergence(self.posterior.kl(self.weight_priors(draws.prior), sample))
            return deviation

        deviation = self._once(draws, one_deviation)
        mean, seed = self._mean(x), draws.next_seed()
        ones = [1] * (self.row_rank - 1)
        rows = self._shape_with_samples(draws, x, x)[:2]
        signs_in = _signs([*rows, *ones, x.shape[-1]], fold_in(seed, 0), x.dtype)
        moved = self.map_all(x * signs_in, self._cast(deviation[self.kernel_name][0]))
        if self.use_bias:
            moved += self._cast(deviation["bias"][0])
        signs_out = _signs([*rows, *ones, moved.shape[-1]], fold_in(seed, 1), moved.dtype)
        return mean + moved * signs_out

    def _shape_with_samples(self, draws, tensor, x):
        """Returns the shape of a tensor as a list, with S in front if the inputs have no draws."""
        shape = tf.unstack(tf.shape(tensor))
        return shape if self.has_draws(x.shape) else [draws.num_samples, *shape]


def _lazily(make):
    """Returns a function that calls `make` once, when it is first called."""
    made = []

    def get():
        if not made:
            made.append(make())
        return made[0]

    return get


def _signs(shape, seed, dtype):
    samples, count, *rest = shape
    bits = replicas.of_all_rows(
        lambda rows: tf.random.stateless_uniform([samples, rows, *rest], seed, 0, 2, tf.int32),
        count,
        axis=1,
    )
    return tf.cast(2 * bits - 1, dtype)
