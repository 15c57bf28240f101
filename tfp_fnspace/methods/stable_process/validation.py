"""Choosing alpha and nu by cross-validation (section 3 of the paper)."""

import itertools
import math
import sys
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tfp_fnspace.boundary import arguments
from tfp_fnspace.datasets import k_fold
from tfp_fnspace.layers.scaler import RunningMoments, Standardizer
from tfp_fnspace.math.random import fold_in
from tfp_fnspace.methods.stable_process import chains, equations, options
from tfp_fnspace.typing import Array, ArrayLike

if TYPE_CHECKING:
    from tfp_fnspace.methods.stable_process.model import StableProcessModel


def checked_grid(alphas: ArrayLike, nus: ArrayLike) -> list[tuple[float, float]]:
    """Returns all pairs (alpha, nu) of two lists of numbers.

    Args:
        alphas: List or array of numbers in (0, 2], or one.
        nus: List or array of positive numbers, or one.

    Raises:
        ValueError: If a list is empty, or holds something else.
    """
    alphas = _checked_numbers("alphas", alphas, "numbers in (0, 2]", 2.0)
    nus = _checked_numbers("nus", nus, "positive finite numbers", sys.float_info.max)
    return list(itertools.product(alphas, nus))


def _checked_numbers(name, values, rule, largest):
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    listed = list(listed) if isinstance(listed, list | tuple | range) else [listed]
    if not listed or not all(
        arguments.is_number(value) and 0.0 < value <= largest for value in listed
    ):
        raise ValueError(f"`{name}` must be {rule}, one at least. Received: {name}={values!r}")
    return [float(value) for value in listed]


def check_budget(num_folds: int, num_rows: int, epochs: int, burn_in: int) -> None:
    """Checks the numbers of folds and epochs."""
    arguments.check_count("num_folds", num_folds)
    if not 2 <= num_folds <= num_rows:
        raise ValueError(
            f"`num_folds` must be from 2 to the number of rows, {num_rows}. "
            f"Received: num_folds={num_folds!r}"
        )
    arguments.check_count("epochs", epochs)
    arguments.check_count("burn_in", burn_in, 0)
    if burn_in >= epochs:
        raise ValueError(
            "`burn_in` must leave at least one epoch. "
            f"Received: burn_in={burn_in!r} with epochs={epochs!r}"
        )


def cross_validate(
    model: "StableProcessModel",
    x: Array,
    y: Array,
    grid: list[tuple[float, float]],
    num_folds: int,
    epochs: int,
    burn_in: int,
    verbose: int,
) -> list[dict[str, float]]:
    """Returns the table of `StableProcessModel.cross_validate`.

    Args:
        model: `StableProcessModel`, not fitted.
        x: Array `[N, I]`, user's units.
        y: Array `[N, D]`, user's units.
        grid: List of pairs (alpha, nu).
        num_folds: Number of folds.
        epochs: Number of epochs.
        burn_in: Number of epochs of burn-in.
        verbose: Whether to print.

    Returns:
        Sorted list of dicts.
    """
    x, _ = _standardised(x, model.standardize)
    y, unit = _standardised(y, model.standardize)
    errors, losses = [], []
    for i, (train, held_out) in enumerate(
        k_fold(len(y), num_folds, seed=model.counters.seeds.number())
    ):
        seed = fold_in(model.counters.seeds.stream("folds"), i)
        values, noise = _sample_fold(
            model, seed, x[train], y[train], x[held_out], grid, epochs, burn_in
        )
        medians = np.median(values, axis=0)  # [G, M, D]
        errors.append(np.abs(medians - y[held_out]))
        losses.append(_losses(model.likelihood, values, noise, y[held_out]))
        if verbose:
            print(f"fold {i + 1} of {num_folds}: error {np.min(errors[-1].mean(axis=(1, 2))):.4g}")
    errors, losses = (np.concatenate(parts, axis=1).mean(axis=1) for parts in (errors, losses))
    losses += np.sum(np.log(unit))
    # errors [G, D] in model units, losses [G]
    order = np.argsort(errors.mean(axis=1), kind="stable")
    return [
        {
            "alpha": grid[g][0],
            "nu": grid[g][1],
            "mae": float(np.mean(errors[g] * unit)),
            "nll": float(losses[g]),
        }
        for g in order
    ]


def _standardised(values, enabled):
    """Returns columns in model units, float64, and the size of one unit of each."""
    scaler = Standardizer(enabled=enabled, dtype="float64")
    scaler.build(values.shape)
    if enabled:
        moments = RunningMoments(values.shape[1])
        moments.update(values)
        scaler.adapt(moments)
    return scaler(values).numpy(), scaler.stddev.numpy()


def _sample_fold(model, seed, x, y, x_new, grid, epochs, burn_in):
    """Draws f at the held-out rows, `[S, G, M, D]`, and the noise, `[S, G, D]`."""
    partition = chains.make_partition(model, x, x_new, model.counters.seeds.number())
    copies, outputs = model.chains.num_chains, y.shape[1]
    problem = chains.make_problem(partition, x, y, len(grid) * copies)
    alpha, nu = np.tile(np.repeat(np.array(grid), copies, axis=0), (outputs, 1)).T
    scale = np.repeat(chains.noise_scales(model, outputs), len(grid) * copies)
    state = chains.initial_state(model, fold_in(seed, 0), problem, alpha, nu, scale**2)
    settings = options.settings_of(model, burn_in)._replace(alpha_range=None, nu_prior=None)
    count = model.chains.draws_per_epoch
    run = chains.compiled_run(model.chains.sampler, settings, count, model.chains.thin)
    signs = tf.constant(partition.signs(x_new), tf.float32)
    shape = (count, outputs, len(grid), copies)
    values, noise = [], []
    for epoch in range(epochs):
        state, draws, _ = run(fold_in(seed, epoch + 1), state, problem)
        if epoch < burn_in:
            continue
        flat = tf.reshape(draws.weights, [-1, partition.num_atoms])  # [K * B, L]
        at_rows = equations.function_values(flat, signs).numpy()  # [K * B, M]
        values.append(at_rows.reshape(*shape, len(x_new)).transpose(0, 3, 2, 4, 1))
        noise.append(draws.noise_scale.numpy().reshape(shape).transpose(0, 3, 2, 1))
    values, noise = np.concatenate(values), np.concatenate(noise)
    return values.reshape(-1, *values.shape[2:]), noise.reshape(-1, *noise.shape[2:])


def _losses(likelihood, values, noise, y):
    """Returns the negative log predictive density of rows, `[G, M]`; outputs are independent."""
    noisy = likelihood.conditional(values, scale=noise[:, :, np.newaxis, :]).distribution
    log_density = tf.reduce_logsumexp(noisy.log_prob(tf.cast(y, values.dtype)), axis=0)
    return -np.sum(log_density.numpy() - math.log(len(values)), axis=-1)
