"""Blocks of iterations with draws of the function in between."""

from typing import Any, NamedTuple

import tensorflow as tf

from tfp_fnspace.boundary.arguments import checked_count
from tfp_fnspace.math.random import as_seed
from tfp_fnspace.methods.stable_process.samplers import checks, functions, grouped
from tfp_fnspace.methods.stable_process.samplers.problem import Problem
from tfp_fnspace.methods.stable_process.samplers.state import (
    FLOAT,
    ChainState,
    Info,
    OneStep,
    Settings,
    checked_state,
)
from tfp_fnspace.typing import Seed


class Draws(NamedTuple):
    """Draws of K states of B chains.

    Attributes:
        weights: `[K, B, L]` float32, of the partition's atoms in its order: the function is
            `f(x) = sum_l weights_l sign(h_l . (1, x))`.
        noise_scale: `[K, B]`, sigma in model units.
        alpha: `[K, B]`.
        nu: `[K, B]`.
    """

    weights: tf.Tensor
    noise_scale: tf.Tensor
    alpha: tf.Tensor
    nu: tf.Tensor


def run(
    seed: Seed,
    state: Any,
    problem: Problem,
    settings: Settings,
    count: int,
    thin: int,
    one_step: OneStep = grouped.one_step,
) -> tuple[ChainState, Draws, Info]:
    """Returns `count` draws of every chain, one after every `thin` iterations.

    Args:
        seed: Non-negative integer, two integers, or int32 tensor `[2]`.
        state: `ChainState`, or a list of its parts.
        problem: `Problem`.
        settings: `Settings`.
        count: Number of draws, K.
        thin: Iterations before each draw.
        one_step: Function `(seed, state, problem, settings) -> (state, info)`.

    Returns:
        The last `ChainState`, `Draws`, and the mean of `Info` over all iterations.

    Raises:
        TypeError: If an argument is of another type.
        ValueError: If a setting or a number is out of range, or the state's shapes do not fit.
    """
    checks.check_type("problem", problem, Problem)
    checks.check_type("settings", settings, Settings)
    settings.check()
    checks.check_one_step(one_step)
    state = checked_state(state, problem, settings)
    count, thin = checked_count("count", count), checked_count("thin", thin)
    chains, atoms = state.alpha.shape[0], problem.place.shape[0]
    seeds = tf.random.stateless_uniform([count, thin + 1, 2], as_seed(seed), None, None, tf.int32)
    zeros = Info(*[tf.zeros([chains], FLOAT)] * len(Info._fields))
    shapes = Draws([chains, atoms], *[[chains]] * 3)
    dtypes = Draws(tf.float32, *[FLOAT] * 3)
    empty = Draws(
        *(tf.TensorArray(d, count, element_shape=s) for d, s in zip(dtypes, shapes, strict=True))
    )

    def iterate(i, k, state, sums):
        state, info = one_step(seeds[k, i], state, problem, settings)
        return i + 1, k, state, tf.nest.map_structure(tf.add, sums, info)

    def draw(k, state, sums, draws):
        loop = (0, k, state, sums)
        _, _, state, sums = tf.while_loop(
            lambda i, *_: i < thin, iterate, loop, parallel_iterations=1
        )
        weights, _ = functions.draw_weights(seeds[k, thin], state, problem)
        new = Draws(
            tf.cast(weights, tf.float32),
            tf.exp(0.5 * state.log_noise),
            state.alpha,
            tf.exp(state.log_nu),
        )
        draws = Draws(*(array.write(k, part) for array, part in zip(draws, new, strict=True)))
        return k + 1, state, sums, draws

    loop = (0, state, zeros, empty)
    _, state, sums, draws = tf.while_loop(
        lambda k, *_: k < count, draw, loop, parallel_iterations=1
    )
    draws = Draws(*(array.stack() for array in draws))
    return state, draws, tf.nest.map_structure(lambda total: total / (count * thin), sums)
