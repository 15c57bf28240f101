"""The stable process as a Keras model."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace import likelihoods
from tfp_fnspace.boundary import arguments, arrays, streams
from tfp_fnspace.boundary.arguments import checked_choice
from tfp_fnspace.callbacks import refuse_learning_rates
from tfp_fnspace.methods.stable_process import diagnostics, draws, options, training, validation
from tfp_fnspace.methods.stable_process.hyperplanes import Partition
from tfp_fnspace.methods.stable_process.samplers.state import NOISE_PRIORS
from tfp_fnspace.methods.stable_process.store import ChainStore
from tfp_fnspace.model import FunctionSpaceModel, checks, fitting, loops, summary
from tfp_fnspace.model.checks import input_tensor
from tfp_fnspace.typing import (
    Array,
    ArrayLike,
    Config,
    Distribution,
    GaussianMoments,
    Rows,
    Seed,
    Shape,
    Tensor,
)

#: Arguments that are objects, or may be.
_OBJECTS = ("alpha", "nu", "likelihood", "chains")

_ALL_ROWS_AT_ONCE = "MCMC conditions on all rows at once: "


@keras.saving.register_keras_serializable(package="tfp_fnspace.stable_process")
class StableProcessModel(FunctionSpaceModel):
    r"""Bayesian network of infinite width whose output weights have infinite variance.

    With random units `tau(x) = sign(b + w.x)`, (b, w) standard normal, and symmetric alpha-stable
    output weights, a wide network tends to the process (Theorem 1 of the paper)

        f(x) = sum_l beta_l tau_l(x),   beta_l | s_l ~ N(0, nu q_l^(2/alpha) s_l),
        E exp(-t s_l) = exp(-t^(alpha/2)),   y = f(x) + sigma e,

    over the sign patterns tau_l of the points, with probabilities q_l (`partition`). Markov chains
    sample s, and sigma, alpha and nu if they are inferred; each stored draw is a set of beta_l, and
    so a function at every x. alpha = 2 gives a Gaussian process with the arc-sine kernel; the jumps
    are rarer and larger for smaller alpha. Paths are piecewise constant.

    An epoch of `fit` is a block of iterations of all chains (see `Chains`). The first epochs,
    those of burn-in, adapt the steps; their draws are replaced by later ones. Several outputs are
    independent processes on one partition, with their own chains.

    At points away from the data the posterior of f has infinite variance for alpha < 2, and no
    mean for alpha <= 1: `mean` and `stddev` are those of the stored draws there, and the median
    (`predict_quantiles`, `function_quantiles`) is the point estimate, as in the paper.

    The process is not invariant to affine maps of x, so the standardisation of the inputs is part
    of the prior. The paper's examples use raw inputs, `standardize=False`.

    Args:
        alpha: Index of the process: a number in (0, 2], or its prior, `Uniform(low, high)`.
            `"infer"` is `Uniform(0.2, 2.0)`.
        nu: Scale of the process (f(x) has the scale sqrt(nu / 2)): a positive number, or its prior,
            `LogNormal(loc, scale)`. `"infer"` is `LogNormal(0.0, 1.0)`.
        likelihood: `likelihoods.Gaussian(scale)` or `likelihoods.StudentT(df, scale)`. With
            `trainable=True` the scale of each output is inferred, and the chains start at the given
            one; otherwise it is fixed. The default is `Gaussian(scale=0.5, trainable=True)`.
            Student's t with df <= 2 has infinite variance, and so have the predictions.
        noise_prior: The prior of an inferred scale sigma: `"variance"`: sigma^2 is
            half-Cauchy(0, 1), as in the paper; `"scale"`: sigma is.
        partition: `"auto"`, `"exact"`, `"refined"`, `"sampled"` (see
            `stable_process.partition`) or a `Partition` in model units. `"auto"` is exact for
            the points of `x` and `x_predict`; without `x_predict`, the patterns on `x` are exact
            and those of new points are sampled within them; in more than two dimensions all are
            sampled. `Refined(num_atoms)` and `Sampled(num_atoms)` have another number of
            hyperplanes than the default, 2,000.
        chains: `Chains`: their number, length and sampler.
        standardize: Whether to standardise inputs and targets by the data of the first `fit`, the
            default.
        seed: Non-negative integer: the same seed gives the same run.
        **kwargs: `name`.

    Raises:
        TypeError: If `likelihood` or `chains` is of another kind.
        ValueError: If another argument is not as described.

    Example:
        >>> model = tfp_fnspace.stable_process.StableProcessModel(alpha=1.1, standardize=False)
        >>> x = np.linspace(-2.0, 2.0, 20)[:, np.newaxis]
        >>> history = model.fit(x, np.sign(x), epochs=30, x_predict=x + 0.01)
        >>> median = model.function_quantiles(x + 0.01, 0.5)  # [20, 1, 1]

    References:
        Loría & Bhadra (2023), "Posterior inference on infinitely wide Bayesian neural networks
        under weights with unbounded variance".
    """

    # A partition's cells can be thinner than float32 resolves.
    input_tensor_dtype = input_scaler_dtype = "float64"
    object_names = _OBJECTS
    draws_smooth_functions = False  # they are piecewise constant
    needs_steps = True

    @property
    def weights_allowed(self) -> str:
        """Any positive weights under Gaussian noise, none under Student-t noise."""
        return "none" if hasattr(self.likelihood, "df") else "positive"

    alpha: float | options.Uniform
    nu: float | options.LogNormal
    store: ChainStore | None

    #: The number of places for draws, `None` before the first `fit`.
    num_eval_samples: int | None

    # Clients send float32, although `predict` takes arrays in float64. An exported model gives the
    # same result at x as `predict(np.float32(x))`. This equals `predict(x)` unless a hyperplane is
    # so near to a point that float32 moves the point to the other side.
    served_dtype = "float32"

    def __init__(
        self,
        *,
        alpha: float | str | options.Uniform = 1.1,
        nu: float | str | options.LogNormal = 1.0,
        likelihood: likelihoods.Gaussian | likelihoods.StudentT | None = None,
        noise_prior: str = "variance",
        partition: str | options.Refined | options.Sampled | Partition = "auto",
        chains: options.Chains | None = None,
        standardize: bool | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(autocast=False, **kwargs)
        self.alpha = options.checked_alpha(alpha)
        self.nu = options.checked_nu(nu)
        self.noise_prior = checked_choice("noise_prior", noise_prior, NOISE_PRIORS)
        self.partition = options.checked_partition(partition)
        self.chains = options.Chains.checked("chains", chains)
        likelihood = options.checked_likelihood(likelihood)
        standardize = True if standardize is None else standardize
        self.setup(likelihood, standardize, seed)
        self.store = self._x_predict = None

    def create(self, input_shape: Shape, num_columns: int, num_rows: int | None) -> None:
        if len(input_shape) != 1:
            raise ValueError(
                "`x` must have shape ('N', I): hyperplanes separate rows of numbers. "
                f"Received: rows of shape {tuple(input_shape)}"
            )
        self.setup_shapes([input_tensor(input_shape, self.input_tensor_dtype)], num_columns)

    # Training ---------------------------------------------------------------------------------

    def compile(
        self,
        metrics: Sequence[Any] = (),
        jit_compile: str | bool = "auto",
        run_eagerly: bool = False,
        **kwargs: Any,
    ) -> None:
        """Configures metrics and compilation; there is no loss and no optimizer.

        Args:
            metrics: Further metrics for `evaluate` and validation.
            jit_compile: Whether XLA compiles prediction and evaluation; the chains are always
                compiled where it pays.
            run_eagerly: Whether prediction and evaluation run without graphs.
            **kwargs: Refused.

        Raises:
            ValueError: If a loss or an optimizer is given.
        """
        refused = {name: value for name, value in kwargs.items() if value is not None}
        if refused:
            raise ValueError(
                "The stable process is sampled: it takes no loss, optimizer or other option. "
                f"Received: {', '.join(f'{k}={v!r}' for k, v in refused.items())}"
            )
        super().compile(metrics=metrics, jit_compile=jit_compile, run_eagerly=run_eagerly)

    def adapt(
        self, x: Rows, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> None:
        """Sets the standardisation from arrays; `fit` does so by itself the first time."""
        with self.turns.training:
            _refuse_stream(x)
            super().adapt(x, y, sample_weight)

    def fit(
        self,
        x: Rows | None = None,
        y: ArrayLike | None = None,
        batch_size: int | None = None,
        epochs: int = 30,
        verbose: int | str = "auto",
        callbacks: list[keras.callbacks.Callback] | None = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool | None = None,
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_freq: Any = 1,
        x_predict: ArrayLike | None = None,
        **unknown: Any,
    ) -> keras.callbacks.History:
        """Runs the chains; arguments and result are as in `keras.Model.fit` if they apply.

        On the data of the last `fit`, the chains go on where they are, without a new burn-in. On
        other data they start warm: noise, alpha, nu, steps and the scales of atoms with the same
        pattern are kept, and a burn-in begins.

        Args:
            x: Array `[N, I]`, or `[N]` for one input.
            y: Targets `[N, D]`, or `[N]`.
            batch_size: Refused, as are `shuffle` and `steps_per_epoch`: an epoch is a block of
                iterations on all rows.
            epochs: Number of epochs, burn-in included.
            verbose: As in Keras.
            callbacks: List of callbacks; `BackupAndRestore` resumes to the same draws.
            validation_split: Fraction of the last rows to validate on.
            validation_data: `(x, y)`. The scores are those of the draws so far; the cost of CRPS
                grows with the square of their number.
            shuffle: Refused.
            class_weight: Refused: there are no classes.
            sample_weight: Positive weights `[N]`, for Gaussian noise. A row of weight w is w copies
                of it: the noise of its target has the variance `sigma^2 / w`, and each copy counts
                where sigma is inferred. Student-t noise has no such form and refuses weights.
            initial_epoch: Number of the first epoch.
            steps_per_epoch: Refused.
            validation_freq: Epochs between validations.
            x_predict: Array `[M, I]` of points at which the distribution of the process must be
                exact, jointly with `x` (see `partition`). `None` leaves the points of a `fit` on
                the same data as they are.
            **unknown: Refused.

        Returns:
            `keras.callbacks.History`. Each epoch has the mean `log_likelihood` of a row given the
            scales and `loss`, its negative, in the user's units. It also has means over its draws:
            the `noise_scale`, also in the user's units, and the parameters `alpha` and `nu` of the
            process, which models standardised targets. `acceptance` is the share of the groups of
            atoms that took a new scale.

        Raises:
            TypeError: If data are not numbers, a callback is not one, or an argument is unknown.
            ValueError: If the data are bad, or an argument cannot be used.
        """
        arguments.refuse_unknown("fit", unknown)
        _refuse_stream(x)
        if sample_weight is not None and self.weights_allowed == "none":
            raise ValueError(
                "`sample_weight` needs Gaussian noise: under Student-t noise each copy of a row "
                "has a variance of its own. "
                f"Received: likelihood={type(self.likelihood).__name__}"
            )
        refused = {"batch_size": batch_size, "shuffle": shuffle, "steps_per_epoch": steps_per_epoch}
        for name, value in refused.items():
            if value is not None:
                raise ValueError(
                    f"{_ALL_ROWS_AT_ONCE}`{name}` must not be given. Received: {name}={value!r}"
                )
        held_out = validation_split if validation_data is None else 0.0
        with self.turns.training:
            fitting.learn_shapes(self, x, y, held_out)
            self._x_predict = training.checked_x_predict(self, x_predict, x)
            history = super().fit(
                x,
                y,
                sample_weight=sample_weight,
                class_weight=class_weight,
                epochs=epochs,
                verbose=verbose,
                callbacks=callbacks,
                validation_split=validation_split,
                validation_data=validation_data,
                initial_epoch=initial_epoch,
                validation_freq=validation_freq,
            )
            training.warn(self)
            return history

    def train_on_batch(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises an error: there are no batches."""
        raise ValueError(
            f"{_ALL_ROWS_AT_ONCE}call `fit` with all of them. Received: a call of train_on_batch"
        )

    def callbacks_of_fit(
        self, given: list[keras.callbacks.Callback]
    ) -> list[keras.callbacks.Callback]:
        refuse_learning_rates(given, "The stable process has no learning rate to schedule.")
        return []

    def run_arrays(
        self,
        inputs: list[Array],
        targets: Array,
        batch_size: int | None,
        shuffle: bool | None,
        options: dict[str, Any],
        row_weights: Array | None = None,
    ) -> keras.callbacks.History:
        _, described = self.counters.epoch_of
        self.counters.epoch_of = self.chains.sweeps_per_epoch, described
        training.prepare(self, inputs[0], targets, self._x_predict, row_weights)
        return loops.by_epochs(self, training.Blocks(self), inputs, targets, options)

    def diagnostics(self, x: ArrayLike | None = None) -> dict[str, diagnostics.Convergence]:
        """Returns the convergence of the chains, from stored draws (thinned, so it is cautious).

        Args:
            x: Points `[N, I]` in the user's units at which f is examined, the training points by
                default.

        Returns:
            Dict of `Convergence(rhat, ess_bulk, ess_tail)`: `f`, arrays `[N, D]`, and those of
            `noise_scale`, `alpha`, `nu` that are inferred, arrays `[D]`. The values are NaN for
            fewer than 4 draws.
        """
        self.check_ready()
        store = self.store
        if x is None:
            x = self.units.input_scalers[0].inverse(store.x.value).numpy()
        values = self.stored_values(x)  # [N, S, D]
        by_chain = values.reshape(len(values), self.chains.num_chains, -1, self.num_outputs)
        found = {"f": diagnostics.convergence(np.moveaxis(by_chain, 0, 2))}
        inferred = {
            "noise_scale": self.likelihood.trainable,
            "alpha": isinstance(self.alpha, options.Uniform),
            "nu": isinstance(self.nu, options.LogNormal),
        }
        for name, is_inferred in inferred.items():
            if is_inferred:
                found[name] = diagnostics.convergence(np.moveaxis(store.stored(name), 0, 2))
        return found

    def cross_validate(
        self,
        x: ArrayLike,
        y: ArrayLike,
        alphas: ArrayLike = (0.5, 0.8, 1.1, 1.4, 1.7, 1.9),
        nus: ArrayLike = (0.3, 1.0, 3.0),
        num_folds: int = 5,
        epochs: int = 30,
        burn_in: int | None = None,
        verbose: int = 0,
    ) -> list[dict[str, float]]:
        """Chooses alpha and nu by the error on held-out rows, as section 3 of the paper does.

        All pairs run at once, as chains of one batch; the partition of a fold is made from its
        training and its held-out rows. The pair with the smallest mean absolute error of the
        pointwise posterior median (in model units, all outputs) becomes `alpha` and `nu`.

        Args:
            x: As for `fit`.
            y: As for `fit`.
            alphas: Numbers in (0, 2].
            nus: Positive numbers.
            num_folds: Number of folds, at least 2 and at most the number of rows.
            epochs: Epochs of `chains.sweeps_per_epoch` iterations, burn-in included.
            burn_in: Epochs of burn-in, those of the model by default.
            verbose: 1 prints a line for each fold.

        Returns:
            List of dicts, one for each pair, the best first: `alpha`, `nu`, `mae` (of the
            observations, mean over outputs) and `nll`, both in the user's units.

        Raises:
            ValueError: If the model has been fitted, or an argument is bad.
        """
        with self.turns.training:
            if self.store is not None:
                raise ValueError(
                    "`cross_validate` chooses alpha and nu before the first `fit`. "
                    "Received: a fitted model"
                )
            inputs, targets = checks.first_data(x, y, self.likelihood, self.input_tensor_dtype)
            burn_in = self.chains.burn_in if burn_in is None else burn_in
            grid = validation.checked_grid(alphas, nus)
            validation.check_budget(num_folds, len(targets), epochs, burn_in)
            table = validation.cross_validate(
                self, inputs, targets, grid, num_folds, epochs, burn_in, verbose
            )
            self.alpha, self.nu = table[0]["alpha"], table[0]["nu"]
            return table

    # Prediction -------------------------------------------------------------------------------

    def moments(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> GaussianMoments:
        return draws.moments(self, inputs[0])

    def function_values(self, x: Tensor) -> Tensor:
        """Returns f for every place of a draw, in the graph, `[N, S, D]` in the user's units."""
        values, _ = draws.function_values(self, self.units.scaled(x)[0])
        return self.units.functions(values)

    def predicted(self, x: Tensor) -> summary.Predicted:
        return summary.Predicted(
            lambda: draws.predictive(self, self.function_values(x)),
            lambda: summary.of_variances(self.function_moments(x), draws.noise_variance(self)),
        )

    def functions(self, inputs: list[Tensor], num_samples: int, seed: Seed) -> Tensor:
        return draws.functions(self, inputs[0], num_samples, seed)

    def numbers_per_row(self, num_samples: int) -> int:
        return max(self.store.sizes["atoms"], num_samples * self.num_outputs)

    def _in_chunks(self, function, x):
        """Applies a function to all rows in chunks, so that memory does not grow with them."""
        inputs = self.checked_inputs(x)
        return np.concatenate(self.in_batches(function, inputs, self.predict_batch_size))

    def stored_values(self, x: ArrayLike) -> Array:
        """Returns the values of f in the stored draws at some points.

        Args:
            x: Array `[N, I]` in the user's units.

        Returns:
            NumPy array `[N, S, D]` in the user's units, S = the number of chains times that of
            draws stored of each chain; the draws of a chain are in order, beside each other.
        """
        self.check_ready()
        stored = self.store.flat_draws()[2].numpy()
        return self._in_chunks(
            lambda part: self.traced(self.function_values)(part).numpy()[:, stored], x
        )

    def posterior_draws(self) -> dict[str, Array]:
        """Returns stored draws of the hyper-parameters, by chain; fixed values repeat.

        Returns:
            Dict of NumPy arrays `[chains, K, D]`: `noise_scale` in the user's units, `alpha`, and
            `nu` in model units.
        """
        self.check_ready()
        found = {
            name: np.moveaxis(self.store.stored(name), 0, -1)
            for name in ("noise_scale", "alpha", "nu")
        }
        found["noise_scale"] = found["noise_scale"] * self.units.target_unit.numpy()
        return found

    def predict_distribution(
        self, x: ArrayLike, batch_size: int | None = None, joint: bool = False
    ) -> Distribution:
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
        values = self._in_chunks(lambda part: self.traced(self.function_values)(part).numpy(), x)
        return draws.predictive(self, tf.constant(values), joint)

    def function_quantiles(self, x: ArrayLike, levels: ArrayLike = (0.05, 0.5, 0.95)) -> Array:
        """Returns quantiles of f over the draws; arguments and result as in `predict_quantiles`.

        The median is the point estimate of the paper.
        """
        levels = arrays.checked_levels(levels)
        self.check_ready()
        stored = self.store.flat_draws()[2].numpy()

        def quantiles(part):
            values = self.traced(self.function_values)(part).numpy()[:, stored]
            return np.moveaxis(np.quantile(values, levels, axis=1), 0, -1)

        return self._in_chunks(quantiles, x)

    # Keras ------------------------------------------------------------------------------------

    def summary(
        self,
        line_length: int | None = None,
        positions: Any = None,
        print_fn: Callable[[str], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Prints the options, the sizes and the state of the chains."""
        (print_fn or print)(self._description())

    def _description(self):
        lines = [
            f"{type(self).__name__} {self.name!r}",
            f"  alpha {self.alpha}, nu {self.nu}, {type(self.likelihood).__name__} noise, "
            f"{'inferred' if self.likelihood.trainable else 'fixed'}",
            f"  {self.chains}",
        ]
        if self.store is None:
            return "\n".join([*lines, "  not fitted"])
        sizes, store = self.store.sizes, self.store
        lines += [
            f"  {sizes['rows']} rows, {sizes['inputs']} inputs, {sizes['outputs']} outputs",
            f"  partition {sizes['kind']}, {sizes['atoms']} atoms",
            f"  {store.counter('epochs')} epochs, {store.counter('stored')} draws of each chain "
            f"stored of at most {store.capacity}",
        ]
        return "\n".join(lines)

    def get_config(self) -> Config:
        names = ("noise_prior", "standardize", "seed")
        return {
            "name": self.name,
            **{name: getattr(self, name) for name in names},
            "partition": options.partition_config(self.partition),
            **{name: keras.saving.serialize_keras_object(getattr(self, name)) for name in _OBJECTS},
        }

    def get_build_config(self) -> Config | None:
        if not self.has_shapes:
            return None
        inputs, outputs = self.input_tensors[0].shape[1], self.num_outputs
        sizes = None if self.store is None else self.store.sizes
        return {"inputs": inputs, "outputs": outputs, "store": sizes}

    def build_from_config(self, config: Config | None) -> None:
        if not config:
            return
        self.create((config["inputs"],), config["outputs"], None)
        if config["store"] is not None:
            training.create_store(self, config["store"])


def _refuse_stream(x):
    if streams.is_stream(x):
        raise ValueError(
            f"{_ALL_ROWS_AT_ONCE}`x` must be an array, not a dataset. "
            f"Received: x of type {type(x).__name__}"
        )
