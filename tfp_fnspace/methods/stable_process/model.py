"""The stable process as a Keras model."""

import keras
import numpy as np

from tfp_fnspace.arguments import checked_choice
from tfp_fnspace.methods.stable_process import diagnostics, options, samplers, validation
from tfp_fnspace.methods.stable_process.prediction import StablePrediction
from tfp_fnspace.methods.stable_process.samplers.checks import (
    checked_alpha_interval,
    checked_nu_prior,
)
from tfp_fnspace.methods.stable_process.samplers.state import NOISE_PRIORS
from tfp_fnspace.methods.stable_process.training import StableTraining
from tfp_fnspace.model import FunctionSpaceModel
from tfp_fnspace.model.turns import one_thread_at_a_time


@keras.saving.register_keras_serializable(package="tfp_fnspace.stable_process")
class StableProcessModel(StableTraining, StablePrediction, FunctionSpaceModel, keras.Model):
    r"""Bayesian network of infinite width whose output weights have infinite variance.

    With random units `tau(x) = sign(b + w.x)`, (b, w) standard normal, and symmetric alpha-stable
    output weights, a wide network tends to the process (Theorem 1 of the paper)

        f(x) = sum_l beta_l tau_l(x),   beta_l | s_l ~ N(0, nu q_l^(2/alpha) s_l),
        E exp(-t s_l) = exp(-t^(alpha/2)),   y = f(x) + sigma e,

    over the sign patterns tau_l of the points, with probabilities q_l (`partition`). Markov chains
    sample s, and sigma, alpha and nu if they are inferred; each stored draw is a set of beta_l, and
    so a function at every x. alpha = 2 gives a Gaussian process with the arc-sine kernel; the jumps
    are rarer and larger for smaller alpha. Paths are piecewise constant.

    An epoch of `fit` is a block of `sweeps_per_epoch` iterations of all chains. The first
    `burn_in` epochs adapt the steps; their draws are replaced by later ones. Several outputs are
    independent processes on one partition, with their own chains.

    At points away from the data the posterior of f has infinite variance for alpha < 2, and no
    mean for alpha <= 1: `mean` and `stddev` are those of the stored draws there, and the median
    (`predict_quantiles`, `function_quantiles`) is the point estimate, as in the paper.

    The process is not invariant to affine maps of x, so the standardisation of the inputs is part
    of the prior. The paper's examples use raw inputs, `standardize=False`.

    Args:
        alpha: Index of the process: a number in (0, 2], or `"infer"`: uniform on `alpha_prior`.
        nu: Scale of the process (f(x) has the scale sqrt(nu / 2)): a positive number, or `"infer"`:
            log nu is normal with the mean and the standard deviation `nu_prior`.
        likelihood: `likelihoods.Gaussian(scale)`, scale 0.5 by default, or
            `likelihoods.StudentT(df, scale)`; the chains start at this scale, or it is fixed.
            Student's t with df <= 2 has infinite variance, and so have the predictions.
        noise: `"infer"` (the scale is inferred, one for each output) or `"fixed"`.
        noise_prior: `"variance"`: sigma^2 is half-Cauchy(0, 1), as in the paper; `"scale"`: sigma.
        alpha_prior: Interval in [0, 2].
        nu_prior: Mean and standard deviation of log nu.
        partition: `"auto"`, `"exact"`, `"refined"`, `"sampled"` (see
            `stable_process.partition`) or a `Partition` in model units. `"auto"` is exact for
            the points of `x` and `x_predict`; without `x_predict`, the patterns on `x` are exact
            and those of new points are sampled within them; in more than two dimensions all are
            sampled.
        num_atoms: Number of hyperplanes of a sampled partition, or of additional ones of a refined
            partition, 2,000 by default. Exact and given partitions have their own number; `fit`
            warns if `num_atoms` is given with one.
        sampler: `"grouped"` (`"auto"`), `"metropolis"` or `"hmc"`; the last two are for comparison.
        num_chains: Chains for each output.
        sweeps_per_epoch: Iterations in an epoch, a multiple of `thin`.
        burn_in: Epochs of burn-in.
        thin: Iterations between draws.
        max_draws: Draws to store for each output, over all chains. Fewer are stored if all weights
            would take more than 40 MB, so that a file of the model, or its export, stays under 50
            MB; at least 4 of each chain are. When the places are full, every second draw is
            dropped.
        num_inputs: Number of inputs I; the first data set it by default.
        standardize: Whether to standardise inputs and targets by the data of the first `fit`, the
            default.
        seed: Non-negative integer: the same seed gives the same run.
        **kwargs: `name`.

    Raises:
        TypeError: If the likelihood is of another kind.
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

    input_scaler_dtype = "float64"
    draws_smooth_functions = False  # they are piecewise constant

    def __init__(
        self,
        alpha=1.1,
        nu=1.0,
        likelihood=None,
        noise="infer",
        noise_prior="variance",
        alpha_prior=(0.2, 2.0),
        nu_prior=(0.0, 1.0),
        partition="auto",
        num_atoms=None,
        sampler="auto",
        num_chains=4,
        sweeps_per_epoch=100,
        burn_in=10,
        thin=5,
        max_draws=1000,
        num_inputs=None,
        standardize=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        self.alpha = options.checked_alpha(alpha)
        self.nu = options.checked_nu(nu)
        self.noise = checked_choice("noise", noise, ("infer", "fixed"))
        self.noise_prior = checked_choice("noise_prior", noise_prior, NOISE_PRIORS)
        self.alpha_prior = checked_alpha_interval("alpha_prior", alpha_prior)
        self.nu_prior = checked_nu_prior(nu_prior)
        self.partition = options.checked_partition(partition)
        self.num_atoms = num_atoms
        self.sampler = checked_choice("sampler", sampler, ("auto", *samplers.SAMPLERS))
        self.num_chains = num_chains
        self.sweeps_per_epoch = sweeps_per_epoch
        self.burn_in = burn_in
        self.thin = thin
        self.max_draws = max_draws
        self.num_inputs = num_inputs
        options.check_counts(**{name: getattr(self, name) for name in options.COUNTS})
        likelihood = options.checked_likelihood(likelihood)
        standardize = True if standardize is None else standardize
        self._setup_options(likelihood, standardize, seed)
        self.store = None
        self._x_predict = None
        self._forget_problem()

    def compile(self, metrics=(), jit_compile="auto", run_eagerly=False, **kwargs):
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

    def diagnostics(self, x=None):
        """Returns the convergence of the chains, from stored draws (thinned, so it is cautious).

        Args:
            x: Points `[N, I]` in the user's units at which f is examined, the training points by
                default.

        Returns:
            Dict of `Convergence(rhat, ess_bulk, ess_tail)`: `f`, arrays `[N, D]`, and those of
            `noise_scale`, `alpha`, `nu` that are inferred, arrays `[D]`. The values are NaN for
            fewer than 4 draws.
        """
        self._check_ready()
        store = self.store
        if x is None:
            x = self.input_scalers[0].inverse(store.x.value).numpy()
        values = self.stored_values(x)  # [N, S, D]
        by_chain = values.reshape(len(values), self.num_chains, -1, self.num_outputs)
        found = {"f": diagnostics.convergence(np.moveaxis(by_chain, 0, 2))}
        inferred = {"noise_scale": self.noise, "alpha": self.alpha, "nu": self.nu}
        for name, value in inferred.items():
            if value == "infer":
                found[name] = diagnostics.convergence(np.moveaxis(store.stored(name), 0, 2))
        return found

    @one_thread_at_a_time
    def cross_validate(
        self,
        x,
        y,
        alphas=(0.5, 0.8, 1.1, 1.4, 1.7, 1.9),
        nus=(0.3, 1.0, 3.0),
        folds=5,
        epochs=30,
        burn_in=None,
        verbose=0,
    ):
        """Chooses alpha and nu by the error on held-out rows, as section 3 of the paper does.

        All pairs run at once, as chains of one batch; the partition of a fold is made from its
        training and its held-out rows. The pair with the smallest mean absolute error of the
        pointwise posterior median (in model units, all outputs) becomes `alpha` and `nu`.

        Args:
            x: As for `fit`.
            y: As for `fit`.
            alphas: Numbers in (0, 2].
            nus: Positive numbers.
            folds: Number of folds, at least 2 and at most the number of rows.
            epochs: Epochs of `sweeps_per_epoch` iterations, burn-in included.
            burn_in: Epochs of burn-in, those of the model by default.
            verbose: 1 prints a line for each fold.

        Returns:
            List of dicts, one for each pair, the best first: `alpha`, `nu`, `mae` (of the
            observations, mean over outputs) and `nll`, both in the user's units.

        Raises:
            ValueError: If the model has been fitted, or an argument is bad.
        """
        if self.store is not None:
            raise ValueError(
                "`cross_validate` chooses alpha and nu before the first `fit`. "
                "Received: a fitted model"
            )
        inputs, targets = self._check_first_data(x, y)
        burn_in = self.burn_in if burn_in is None else burn_in
        grid = validation.checked_grid(alphas, nus)
        validation.check_budget(folds, len(targets), epochs, burn_in)
        table = validation.cross_validate(
            self, inputs, targets, grid, folds, epochs, burn_in, verbose
        )
        self.alpha, self.nu = table[0]["alpha"], table[0]["nu"]
        return table

    # Keras ------------------------------------------------------------------------------------

    def summary(self, line_length=None, positions=None, print_fn=None, **kwargs):
        """Prints the options, the sizes and the state of the chains."""
        (print_fn or print)(self._description())

    def _description(self):
        lines = [
            f"{type(self).__name__} {self.name!r}",
            f"  alpha {self.alpha}, nu {self.nu}, noise {self.noise} "
            f"({type(self.likelihood).__name__})",
            f"  sampler {self.sampler_name}, {self.num_chains} chains for each output, epochs of "
            f"{self.sweeps_per_epoch} iterations, {self.burn_in} of them burn-in",
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

    def get_config(self):
        names = ("alpha", "nu", "noise", "noise_prior", "sampler", "standardize", "seed")
        return {
            "name": self.name,
            **{name: getattr(self, name) for name in (*names, *options.COUNTS)},
            "alpha_prior": list(self.alpha_prior),
            "nu_prior": list(self.nu_prior),
            "partition": options.partition_config(self.partition),
            "likelihood": keras.saving.serialize_keras_object(self.likelihood),
        }

    def get_build_config(self):
        if self.input_tensors is None:
            return None
        inputs, outputs = self.input_tensors[0].shape[1], self.num_outputs
        sizes = None if self.store is None else self.store.sizes
        return {"inputs": inputs, "outputs": outputs, "store": sizes}

    def build_from_config(self, config):
        if not config:
            return
        self._setup_for((config["inputs"],), config["outputs"], None)
        if config["store"] is not None:
            self._create_store(config["store"])
