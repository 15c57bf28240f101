"""An LSTM with Gaussian weights in NumPy: one row, one time step after the other.

The equations are those of the class's docstring, with the moments of products (equations 3 and 5
of Goulet, Nguyen & Amiri 2021) and linearised gates (11 and 12). The backward pass carries a
change of a unit's moments as q = change of the mean / variance and p = change of the variance /
variance^2, see `tagi.Graph.row_changes`.
"""

import numpy as np
from tagi import linearized_moments

GATES = ("sigmoid", "sigmoid", "tanh", "sigmoid")  # input, forget, cell, output


def product(ma, sa, mb, sb):
    return ma * mb, sa * sb + sa * mb**2 + sb * ma**2


def forward(weights, x, input_variance=None):
    """Returns moments of h and c after each step.

    Args:
        weights: Dictionary with pairs (mean, variance): `kernel` `[D, 4U]`, `recurrent` `[U, 4U]`,
            `bias` `[4U]`.
        x: Means of the inputs `[T, D]`.
        input_variance: `[T, D]`, zero by default.

    Returns:
        A list of one dictionary for each step, with all that the backward pass needs.
    """
    (mw, sw), (mu, su), (mb, sb) = (weights[name] for name in ("kernel", "recurrent", "bias"))
    units = len(mu)
    h = c = (np.zeros(units), np.zeros(units))
    variances = np.zeros_like(x) if input_variance is None else input_variance
    steps = []
    for mx, sx in zip(x, variances, strict=True):
        mz, sz = mb.copy(), sb.copy()
        for moments, (m, s) in (((mx, sx), (mw, sw)), (h, (mu, su))):
            for j in range(4 * units):
                for i in range(len(moments[0])):
                    mean, variance = product(moments[0][i], moments[1][i], m[i, j], s[i, j])
                    mz[j] += mean
                    sz[j] += variance
        parts = [slice(k * units, (k + 1) * units) for k in range(4)]
        gates = [
            linearized_moments(name, mz[part], sz[part])
            for name, part in zip(GATES, parts, strict=True)
        ]
        i, f, g, o = gates
        step = {"x": mx, "h_before": h[0], "c_before": c[0], "gates": gates}
        kept, added = product(*f[:2], *c), product(*i[:2], *g[:2])
        c = (kept[0] + added[0], kept[1] + added[1])
        *tanh, step["slope"] = linearized_moments("tanh", *c)
        h = product(*o[:2], *tanh)
        steps.append({**step, "tanh": tanh[0], "h": h, "c": c})
    return steps


def backward(weights, steps, q_out, p_out):
    """Sums the innovations of all weights over time, and computes those of the inputs.

    Args:
        weights: As in `forward`.
        steps: What `forward` returned.
        q_out: q of h after each step, `[T, U]`.
        p_out: p, the same.

    Returns:
        Dictionary name -> (q, p), and q and p of the inputs, `[T, D]`.
    """
    sums = {name: [np.zeros_like(pair[0]) for _ in range(2)] for name, pair in weights.items()}
    zero = np.zeros(len(weights["recurrent"][0]))
    q_h, p_h, q_c, p_c = zero, zero, zero, zero
    q_x, p_x = [], []
    for step, q, p in zip(steps[::-1], q_out[::-1], p_out[::-1], strict=True):
        q_h, p_h = q_h + q, p_h + p
        i, f, g, o = (gate[0] for gate in step["gates"])
        q_c = q_c + step["slope"] * o * q_h
        p_c = p_c + (step["slope"] * o) ** 2 * p_h
        others = (g, step["c_before"], i)  # factors of the input, forget and cell gates
        q_gates = [other * q_c for other in others] + [step["tanh"] * q_h]
        p_gates = [other**2 * p_c for other in others] + [step["tanh"] ** 2 * p_h]
        slopes = np.concatenate([gate[2] for gate in step["gates"]])
        q_z, p_z = slopes * np.concatenate(q_gates), slopes**2 * np.concatenate(p_gates)
        inputs = {"kernel": step["x"], "recurrent": step["h_before"], "bias": None}
        for name, a in inputs.items():
            sums[name][0] += q_z if a is None else np.outer(a, q_z)
            sums[name][1] += p_z if a is None else np.outer(a**2, p_z)
        q_x.insert(0, weights["kernel"][0] @ q_z)
        p_x.insert(0, weights["kernel"][0] ** 2 @ p_z)
        q_h, p_h = weights["recurrent"][0] @ q_z, weights["recurrent"][0] ** 2 @ p_z
        q_c, p_c = f * q_c, f**2 * p_c
    return sums, np.array(q_x), np.array(p_x)
