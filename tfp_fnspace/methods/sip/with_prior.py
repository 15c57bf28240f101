"""The base of models with a prior process."""

import tensorflow as tf

from tfp_fnspace import arguments
from tfp_fnspace.likelihoods.additive import default_noise
from tfp_fnspace.math.random import as_seed
from tfp_fnspace.methods.sip import parts
from tfp_fnspace.model.sizes import LearnsSizes
from tfp_fnspace.processes.base import Process

#: How many numbers the widest layer of a prior takes for one function at one point, a guess.
PRIOR_WIDTH = 64


class WithPrior(LearnsSizes):
    """Mixin of models with a prior process, which is built for the sizes of the first data.

    A model calls `_setup_prior` when it is made, and `_build_prior` when it knows the sizes.
    """

    prior = None

    def _setup_prior(
        self,
        prior,
        likelihood,
        num_outputs,
        train_prior,
        standardize,
        seed,
        needs_functions=False,
    ):
        """Checks and keeps arguments of the model, as a part of its `__init__`."""
        parts.check_prior(prior, num_outputs, needs_functions)
        if num_outputs is not None:
            num_outputs = arguments.checked_count("num_outputs", num_outputs)
        if likelihood is None:
            likelihood = default_noise(self.variable_dtype)
        self._prior_argument, self._given_outputs = prior, num_outputs
        self.train_prior, self._standardize_argument = bool(train_prior), standardize
        self._setup_options(likelihood, True if standardize is None else standardize, seed)

    def _checked_outputs(self, num_columns):
        """Returns D for targets with `num_columns` columns."""
        num_outputs = self._given_outputs
        if isinstance(self._prior_argument, Process):
            num_outputs = self._prior_argument.num_outputs
        elif num_outputs is None:
            num_outputs = num_columns * (2 if self.likelihood.has_noise_outputs else 1)
        self.likelihood.check_outputs(num_outputs)
        return num_outputs

    def _build_prior(self, input_shape, num_outputs):
        """Makes the prior for rows of a given shape."""
        dtype = self.variable_dtype
        seed, *_ = parts.seeds_of(self)
        self.prior = parts.build_prior(self._prior_argument, input_shape, num_outputs, dtype, seed)
        if self._standardize_argument is None:
            self.standardize = len(input_shape) == 1

    @property
    def fixed_parts(self):
        return [*super().fixed_parts, *([] if self.train_prior else [self.prior])]

    def _prior_functions(self, x, num_samples, seed):
        """Draws the prior at points in model units, `[S, N, D]` in the dtype of the model."""
        return tf.cast(self.prior.sample(x, num_samples, seed), self.variable_dtype)

    @property
    def scalers_ready(self):
        """Whether the sizes are known, and inputs and targets have a standardisation."""
        return self.prior is not None and super().scalers_ready

    def sample_prior_functions(self, x, num_samples, seed=(0, 0)):
        """Draws functions from the learned prior.

        Args:
            x: As for `predict`, arrays only.
            num_samples: S, a positive integer.
            seed: Integer or two integers.

        Returns:
            NumPy array `[S, N, D]` in the user's units.
        """
        arguments.check_count("num_samples", num_samples)
        self._check_ready()
        (x,) = self.scaled([tf.constant(v) for v in self._check_inputs(x)])
        draws = self._prior_functions(x, int(num_samples), as_seed(seed))
        return self.functions_in_user_units(draws).numpy()
