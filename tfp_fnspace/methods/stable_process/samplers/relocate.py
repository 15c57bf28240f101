r"""Moving jumps: exchanges between the largest atom of a group and another atom.

Refreshing scales from the prior rarely moves a large scale, because the data would have to do
without the jump in between. Here the largest atom l of a group g exchanges its share of the
covariance with another atom k. If k is in the same group, the likelihood stays as it is; if k is in
a group with a near pattern, Q changes by two rank-one terms. A third move rescales the largest
atom.

Exchanges are of masses, `q_l^{2/alpha} s_l <-> q_k^{2/alpha} s_k`, whose prior ratio has a closed
form given Kanter's u, or of the scales themselves, `s_l <-> s_k`, which are exchangeable. The group
is picked with probability proportional to a power of its total, the atom k in proportion to q; both
choices are corrected for. A move is refused if l would not be found again after it.
"""

from typing import NamedTuple

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.methods.stable_process import equations
from tfp_fnspace.methods.stable_process.samplers import state as chain
from tfp_fnspace.methods.stable_process.samplers.problem import BLOCK, Problem
from tfp_fnspace.typing import Seed, Tensor

#: Power of a group's total in the probability that it is picked.
_POWER = 0.75

#: Shares of the moves inside a group and between groups; the other moves rescale.
_INSIDE, _BETWEEN = 0.45, 0.4

#: Beyond this logit, u would round to 0 or 1.
_LARGEST_LOGIT = 35.0


class _Jumps(NamedTuple):
    """Values that moves change: precision `[B, N, N]`, P y, u, log masses, totals of groups."""

    precision: tf.Tensor
    weighted: tf.Tensor
    u: tf.Tensor
    log_masses: tf.Tensor
    totals: tf.Tensor


class _Exchange(NamedTuple):
    """A proposal: two atoms, their groups and their new values; `[B]` each."""

    atom: tf.Tensor
    target: tf.Tensor
    group: tf.Tensor
    other: tf.Tensor
    log_mass_atom: tf.Tensor
    log_mass_target: tf.Tensor
    u_atom: tf.Tensor
    u_target: tf.Tensor
    same: tf.Tensor
    log_prior_ratio: tf.Tensor
    possible: tf.Tensor


def relocate(
    seed: Seed,
    precision: Tensor,
    weighted: Tensor,
    state: chain.ChainState,
    totals: Tensor,
    problem: Problem,
    count: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Makes `count` moves in turn.

    Args:
        seed: int32 tensor `[2]`.
        precision: `[B, N, N]`, Q^-1.
        weighted: `[B, N]`, Q^-1 y.
        state: `ChainState`.
        totals: `[B, G]`, the groups' totals.
        problem: `Problem`.
        count: Number of moves.

    Returns:
        The new u and log s, `[B, L]`, and the share of moves that were accepted, `[B]`.
    """
    chains = precision.shape[0]
    if count == 0:
        return state.u, state.log_scales, tf.zeros([chains], precision.dtype)
    first, second = tfp.random.split_seed(seed)
    draws = chain.uniform([count, 8, chains], first)
    noise = chain.standard_normal([count, 2, chains], second)
    masses = chain.log_masses(state.log_scales, problem, state.alpha)
    patterns = tf.transpose(problem.signs)

    def step(i, jumps, accepted):
        jumps, accept = _move(jumps, draws[i], noise[i], patterns, state, problem)
        return i + 1, jumps, accepted + tf.cast(accept, accepted.dtype)

    jumps = _Jumps(precision, weighted, state.u, masses, totals)
    zeros = tf.zeros([chains], precision.dtype)
    _, jumps, accepted = tf.while_loop(
        lambda i, *_: i < count, step, (0, jumps, zeros), maximum_iterations=count
    )
    scales = equations.log_scales_of_masses(
        jumps.log_masses, problem.log_probability, state.alpha[:, tf.newaxis]
    )
    return jumps.u, scales, accepted / count


def _move(jumps, draws, noise, patterns, state, problem):
    """Makes one move of every chain; returns the new jumps and whether it was accepted."""
    weights = jumps.totals**_POWER
    norm = tf.reduce_sum(weights, axis=-1)
    group = _pick_group(weights, norm, draws[1])
    exchange = _propose(jumps, group, draws, noise, state, problem)
    group, other = exchange.group, exchange.other

    # The likelihood changes by two rank-one terms; inside a group they are one.
    zero = tf.zeros_like(norm)
    one_group = tf.equal(group, other)
    change_l = tf.exp(exchange.log_mass_atom) - tf.exp(_take(jumps.log_masses, exchange.atom))
    change_k = tf.exp(exchange.log_mass_target) - tf.exp(_take(jumps.log_masses, exchange.target))
    change_l = tf.where(exchange.same, zero, change_l)
    change_g = tf.where(one_group, change_l + change_k, change_l)
    change_h = tf.where(one_group, zero, change_k)
    nu = tf.exp(state.log_nu)
    both = tf.stack([tf.gather(patterns, group), tf.gather(patterns, other)], axis=-1)  # [B, N, 2]
    update = equations.update_twice(
        jumps.precision, jumps.weighted, both, nu * change_g, nu * change_h
    )
    old_g, old_h = _take(jumps.totals, group), _take(jumps.totals, other)
    new_g = old_g + change_g
    new_h = tf.where(one_group, new_g, old_h + change_h)

    # The way back starts from the group where the jump is now.
    new_norm = norm + new_g**_POWER - old_g**_POWER
    new_norm += tf.where(one_group, zero, new_h**_POWER - old_h**_POWER)
    selection = _POWER * (tf.math.log(new_h) - tf.math.log(old_g))
    selection += tf.math.log(norm) - tf.math.log(new_norm)
    selection += tf.where(exchange.same, zero, _choice_ratio(exchange, problem))

    largest = tf.math.log(tf.maximum(new_g, new_h))
    accept = exchange.possible & (state.log_nu + largest <= problem.log_largest_mass)
    accept &= tf.equal(_largest_after(jumps, exchange, problem), exchange.target)
    ratio = exchange.log_prior_ratio + selection + update.log_ratio
    accept &= ratio > tf.math.log(draws[6])  # false for NaN
    return _carry_out(jumps, exchange, update, new_g, new_h, accept), accept


def _carry_out(jumps, exchange, update, new_g, new_h, accept):
    """Returns the jumps after the accepted moves."""
    atoms = tf.range(jumps.u.shape[1])
    groups = tf.range(jumps.totals.shape[1])
    take_l = accept & ~exchange.same

    def write(values, place, at_l, new_l, at_k, new_k, only_l, only_k):
        here = tf.equal(place, at_l[:, tf.newaxis]) & only_l[:, tf.newaxis]
        values = tf.where(here, new_l[:, tf.newaxis], values)
        here = tf.equal(place, at_k[:, tf.newaxis]) & only_k[:, tf.newaxis]
        return tf.where(here, new_k[:, tf.newaxis], values)

    e = exchange
    matrix, vector = accept[:, tf.newaxis, tf.newaxis], accept[:, tf.newaxis]
    return _Jumps(
        precision=tf.where(matrix, update.precision, jumps.precision),
        weighted=tf.where(vector, update.weighted, jumps.weighted),
        u=write(jumps.u, atoms, e.atom, e.u_atom, e.target, e.u_target, take_l, accept),
        log_masses=write(
            jumps.log_masses,
            atoms,
            e.atom,
            e.log_mass_atom,
            e.target,
            e.log_mass_target,
            take_l,
            accept,
        ),
        totals=write(jumps.totals, groups, e.group, new_g, e.other, new_h, accept, accept),
    )


def _propose(jumps, group, draws, noise, state, problem):
    """Proposes new values for the largest atom of the group and another one, or for it alone."""
    kind = draws[0]
    inside, own = kind < _INSIDE, kind >= _INSIDE + _BETWEEN
    rescale, refresh = own & (draws[5] < 0.5), own & (draws[5] >= 0.5)
    degree = tf.gather(problem.degree, group)
    slot = tf.cast(draws[2] * tf.cast(degree, draws.dtype), tf.int32)
    near = tf.gather(tf.gather(problem.neighbours, group), slot, batch_dims=1)
    other = tf.where(inside | own | (degree == 0), group, near)
    atom = _largest(jumps, group, problem)
    target = tf.where(own, atom, _pick_atom(other, draws[3], problem))
    same = tf.equal(atom, target)
    zero = tf.zeros_like(draws[0])

    by_mass = draws[4] < 0.5
    mass_l, mass_k = _take(jumps.log_masses, atom), _take(jumps.log_masses, target)
    share_l = 2.0 / state.alpha * tf.gather(problem.log_probability, atom)
    share_k = 2.0 / state.alpha * tf.gather(problem.log_probability, target)
    new_l = tf.where(by_mass, mass_k, mass_k - share_k + share_l)
    new_k = tf.where(by_mass, mass_l, mass_l - share_l + share_k)
    new_k = tf.where(same, mass_k + tf.where(rescale, noise[0], zero), new_k)

    # Far out in the tail, s is (1 - u)^(-1/index) times a function of e. So u follows its scale,
    # and e stays nearly the same.
    index = equations.index_of(state.alpha)
    logit_l, logit_k = (_logit(_take(jumps.u, place)) for place in (atom, target))
    before_l, before_k = mass_l - share_l, mass_k - share_k
    after_l, after_k = new_l - share_l, new_k - share_k
    to_k = tf.where(same, logit_k + tf.where(refresh, noise[1], zero), logit_l)
    new_logit_l = logit_k + index * (after_l - before_k)
    new_logit_k = to_k + index * (after_k - tf.where(same, before_k, before_l))

    logits = tf.stack([new_logit_k, logit_k, new_logit_l, logit_l])
    densities = equations.log_jump_density(
        logits, tf.stack([after_k, before_k, after_l, before_l]), state.alpha
    )
    prior = densities[0] - densities[1]
    prior += tf.where(same, zero, densities[2] - densities[3])
    new_u_l, new_u_k = tf.sigmoid(new_logit_l), tf.sigmoid(new_logit_k)
    possible = (tf.abs(new_logit_k) < _LARGEST_LOGIT) & (tf.abs(new_logit_l) < _LARGEST_LOGIT)
    return _Exchange(
        atom, target, group, other, new_l, new_k, new_u_l, new_u_k, same, prior, possible
    )


def _choice_ratio(exchange, problem):
    """Returns the log ratio of the probabilities of choosing the way back and the way there."""

    def choice(atom, group):
        q = tf.gather(problem.log_probability, atom)
        return q - tf.math.log(tf.gather(problem.group_probability, group))

    def log_degree(group):
        return tf.math.log(tf.cast(tf.gather(problem.degree, group), problem.signs.dtype))

    ratio = choice(exchange.atom, exchange.group) - choice(exchange.target, exchange.other)
    step = log_degree(exchange.group) - log_degree(exchange.other)
    return ratio + tf.where(tf.equal(exchange.group, exchange.other), tf.zeros_like(step), step)


def _take(values, index):
    """Returns `values[b, index[b]]`, `[B]`."""
    return tf.gather(values, index, batch_dims=1)


def _logit(u):
    return tf.math.log(u) - tf.math.log1p(-u)


def _pick_group(weights, norm, v):
    """Returns a group with probability `weights / norm`: first its block, then its place there."""
    blocks = tf.reshape(weights, [weights.shape[0], -1, BLOCK])
    goal = (v * norm)[:, tf.newaxis]
    before, block = _pick(tf.reduce_sum(blocks, axis=-1), goal)
    inside = tf.gather(blocks, block, batch_dims=1)
    _, place = _pick(inside, goal - before[:, tf.newaxis])
    return block * BLOCK + place


def _pick(weights, goal):
    """Returns the sum before, and the first entry at which the sum of weights passes `goal`."""
    size = weights.shape[1]
    # A product with a triangle is used: XLA's cumulative sums are also quadratic on a CPU, and
    # slow.
    triangle = tf.linalg.band_part(tf.ones([size, size], weights.dtype), 0, -1)
    sums = tf.matmul(weights, triangle)
    below = tf.cast(sums < goal, tf.int32)
    below *= tf.cast(sums < sums[:, -1:], tf.int32)  # rounding must not pass the last
    entry = tf.reduce_sum(below, axis=-1)
    before = _take(sums, entry) - _take(weights, entry)
    return before, entry


def _members(group, problem):
    """Returns atoms of one group for each chain, `[B, A]`, and which of them are there."""
    start = tf.gather(problem.start, group)[:, tf.newaxis]
    present = problem.positions < tf.gather(problem.size, group)[:, tf.newaxis]
    return start + tf.where(present, problem.positions, 0), present


def _largest(jumps, group, problem):
    atoms, present = _members(group, problem)
    masses = tf.gather(jumps.log_masses, atoms, batch_dims=1)
    return _argmax(masses, atoms, present)


def _largest_after(jumps, exchange, problem):
    """Returns the largest atom of the target's group once the exchange is made."""
    atoms, present = _members(exchange.other, problem)
    masses = tf.gather(jumps.log_masses, atoms, batch_dims=1)
    from_l = tf.equal(atoms, exchange.atom[:, tf.newaxis])
    masses = tf.where(from_l, exchange.log_mass_atom[:, tf.newaxis], masses)
    from_k = tf.equal(atoms, exchange.target[:, tf.newaxis])
    masses = tf.where(from_k, exchange.log_mass_target[:, tf.newaxis], masses)
    return _argmax(masses, atoms, present)


def _argmax(masses, atoms, present):
    masses = tf.where(present, masses, masses.dtype.min)
    return _take(atoms, tf.argmax(masses, axis=-1, output_type=tf.int32))


def _pick_atom(group, v, problem):
    """Returns an atom of the group with probability proportional to q."""
    atoms, present = _members(group, problem)
    share = tf.gather(problem.cumulative_share, atoms)
    below = present & (share < v[:, tf.newaxis])
    below &= problem.positions < tf.gather(problem.size, group)[:, tf.newaxis] - 1
    return _take(atoms, tf.reduce_sum(tf.cast(below, tf.int32), axis=-1))
