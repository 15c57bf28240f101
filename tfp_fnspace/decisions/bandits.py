"""Contextual bandits by Thompson sampling."""

from typing import Any

import keras
import numpy as np

from tfp_fnspace.boundary import arguments, arrays, columns, data
from tfp_fnspace.math.random import as_seed, fold_in, permutation
from tfp_fnspace.model import FunctionSpaceModel
from tfp_fnspace.typing import Array, ArrayLike


class ContextualBandit:
    """Thompson sampling with a model of the reward of an action in a context.

    The model regresses the reward, one column, on rows `[context, one-hot action]`. For each
    context a function is drawn from the posterior, and the action with the largest reward under
    this draw is chosen. Each action is therefore tried with the probability that it is the best.

    Args:
        model: A `FunctionSpaceModel` with one input `[N, C + K]` and one output. The first contexts
            are few, so scale contexts yourself, and turn off standardisation in the model
            (`standardize=False`).
        num_actions: K, at least 2.
        initial_pulls: How often each action is taken before the model is used.
        seed: Non-negative integer; with the same model, the same seed makes the same choices.

    Raises:
        TypeError: If `model` is not a model.
        ValueError: If a number is out of range.

    Example:
    ```python
    bandit = ContextualBandit(model, num_actions=2)
    for context in contexts:
        (action,) = bandit.choose(context[np.newaxis])
        bandit.observe(context[np.newaxis], [action], [reward_of(context, action)])
        if bandit.num_observations % 50 == 0:
            bandit.fit(epochs=100, verbose=0)
    ```

    References:
        Thompson (1933), "On the likelihood that one unknown probability exceeds another in view of
        the evidence of two samples", Biometrika 25.
        Riquelme, Tucker and Snoek (2018), "Deep Bayesian bandits showdown", ICLR.
    """

    def __init__(
        self, model: FunctionSpaceModel, num_actions: int, initial_pulls: int = 3, seed: int = 0
    ):
        arguments.check_model(model, "fit", "sample_functions")
        arguments.check_count("num_actions", num_actions, least=2)
        arguments.check_count("initial_pulls", initial_pulls, least=0)
        arguments.check_count("seed", seed, least=0)
        self.model, self.num_actions = model, int(num_actions)
        self.initial_pulls, self.seed = int(initial_pulls), int(seed)
        self._rows, self._rewards, self._choices, self._is_fitted = [], [], 0, False
        self._columns = None

    @property
    def num_observations(self) -> int:
        """Number of rewards that have been observed."""
        return len(self._rewards)

    @property
    def observations(self) -> tuple[Array, Array]:
        """The data for the model: rows `[N, C + K]` and rewards `[N, 1]`, float64 arrays."""
        return np.array(self._rows, np.float64), np.array(self._rewards, np.float64)

    def rows(self, contexts: ArrayLike, actions: ArrayLike | None = None) -> Array:
        """Makes the inputs of the model.

        Args:
            contexts: Array `[N, C]`.
            actions: Integers `[N]`; by default all actions for each context.

        Returns:
            float64 array `[N, C + K]`, or `[N K, C + K]` with all actions of each context in turn.

        Raises:
            TypeError: If the contexts are not numbers.
            ValueError: If a shape is wrong, a context is not finite, or an action does not exist.
        """
        columns.check_column_names(contexts, self._columns, "contexts", "columns")
        contexts = arrays.as_array(contexts, "contexts")
        width = self._width
        if contexts.ndim != 2 or not len(contexts) or width not in (None, contexts.shape[1]):
            raise ValueError(
                f"`contexts` must have shape (N, {'C' if width is None else width}), N at least "
                f"1. Received: contexts of shape {contexts.shape}"
            )
        data.check_finite("contexts", contexts)
        data.check_size("contexts", contexts, self._largest)
        if actions is None:
            actions = np.tile(np.arange(self.num_actions), len(contexts))
            contexts = np.repeat(contexts, self.num_actions, axis=0)
        actions = data.check_targets(actions, len(contexts), 1, False, np.float64, name="actions")
        data.check_labels(actions, self.num_actions, name="actions")
        one_hot = np.eye(self.num_actions, dtype=np.float64)[actions[:, 0].astype(int)]
        return np.concatenate([contexts.astype(np.float64), one_hot], axis=1)

    @property
    def _width(self):
        """C of the observed contexts, or else of the model if it knows; or None."""
        if self._rows:
            return len(self._rows[0]) - self.num_actions
        tensors = getattr(self.model, "input_tensors", None)
        return tensors[0].shape[-1] - self.num_actions if tensors else None

    @property
    def _largest(self):
        """The largest magnitude that the model accepts."""
        is_scaled = getattr(self.model, "standardize", False)
        return data.LARGEST_VALUE if is_scaled else data.LARGEST_SCALED

    def choose(self, contexts: ArrayLike) -> Array:
        """Chooses actions for some contexts.

        The first `initial_pulls` times K choices take the actions in turn, in random order. So do
        all choices until `fit` is called.

        Args:
            contexts: Array `[N, C]`. Each context costs a function draw at the rows of all
                contexts, so N should be small.

        Returns:
            Integer array `[N]`.

        Raises:
            TypeError: If the contexts are not numbers.
            ValueError: If their shape is wrong, or one is not finite. Such a call does not count as
                a choice.
        """
        rows = self.rows(contexts)
        count = len(rows) // self.num_actions
        numbers = np.arange(self._choices, self._choices + count)
        self._choices += count
        pulled = np.array([self._pull(number) for number in numbers])
        if not self._is_fitted:
            return pulled
        seed = fold_in(as_seed(self.seed), int(numbers[0]))
        draws = self.model.sample_functions(rows, count, seed=seed)
        draws = draws.reshape(count, count, self.num_actions)
        best = np.argmax(draws[np.arange(count), np.arange(count)], axis=-1)
        return np.where(numbers < self.initial_pulls * self.num_actions, pulled, best)

    def _pull(self, number):
        """Returns the action of a choice that is made without the model."""
        turn, place = divmod(int(number), self.num_actions)
        return permutation(as_seed(self.seed).numpy(), turn, self.num_actions)[place]

    def observe(self, contexts: ArrayLike, actions: ArrayLike, rewards: ArrayLike) -> None:
        """Stores the rewards of some choices.

        Args:
            contexts: Array `[N, C]`.
            actions: Integers `[N]`.
            rewards: Numbers `[N]`.

        Raises:
            TypeError: If a value is not a number.
            ValueError: If shapes do not match, an action does not exist, or a context or a reward
                is not finite. Nothing is then stored.
        """
        rows = self.rows(contexts, actions)
        rewards = data.check_targets(
            rewards, len(rows), 1, False, np.float64, name="rewards", largest=self._largest
        )
        if not self._rows:
            self._columns = columns.names_to_keep(contexts)
        self._rows.extend(rows)
        self._rewards.extend(rewards)

    def fit(self, **options: Any) -> keras.callbacks.History:
        """Fits the model to all observations, continuing from its present state.

        Args:
            **options: Arguments of the model's `fit`, such as `epochs`.

        Returns:
            `keras.callbacks.History`.

        Raises:
            ValueError: If nothing was observed.
        """
        if not self._rewards:
            raise ValueError("`fit` needs observations. Received: none so far, see `observe`")
        history = self.model.fit(*self.observations, **options)
        self._is_fitted = True
        return history
