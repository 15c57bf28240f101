"""Attention with Gaussian weights in NumPy: one row, one head, one query after the other.

It uses products of independent Gaussians (equations 3 and 5 of Goulet, Nguyen & Amiri 2021), and
a softmax linearised at the means with its Jacobian. The backward pass has q and p of
`tagi.Graph.row_changes`.
"""

import numpy as np


def dense(layer, mean, variance):
    """Returns moments of `a W + b` for each row of a; `layer` has W and b as (mean, variance)."""
    (mw, sw), (mb, sb) = layer
    spread = (mean**2 + variance) @ sw + variance @ mw**2 + sb
    return mean @ mw + mb, spread


def dense_back(layer, mean, q, p):
    """Returns q and p of a, and the sums over the rows for W and b."""
    (mw, _), _ = layer
    sums = [(mean.T @ q, mean.T**2 @ p), (q.sum(axis=0), p.sum(axis=0))]
    return (q @ mw.T, p @ mw.T**2), sums


def dot(first, second):
    """Returns moments of the sum of products of two vectors of independent Gaussians."""
    (ma, sa), (mb, sb) = first, second
    return ma @ mb, (ma**2 * sb + sa * mb**2 + sa * sb).sum()


def attention(layers, query, value, heads, q_out, p_out):
    """Returns moments of the outputs, and the innovations of everything given those of the outputs.

    Args:
        layers: `query`, `key`, `value`, `output`: pairs for W and b.
        query: Known `[T, D]`.
        value: Known `[S, E]`; the keys are computed from it too.
        heads: Number of heads.
        q_out: `[T, O]`.
        p_out: `[T, O]`.

    Returns:
        Mean and variance of the outputs `[T, O]`, and a dictionary: (q, p) of `inputs` (query,
        value), and of W and b of each layer.
    """
    sources = {"query": query, "key": value, "value": value}
    parts = {n: dense(layers[n], x, np.zeros_like(x)) for n, x in sources.items()}
    steps, places = len(query), len(value)

    def head(name, h):
        size = parts[name][0].shape[1] // heads
        return slice(h * size, (h + 1) * size)

    size = parts["key"][0].shape[1] // heads
    joined = [np.zeros((steps, parts["value"][0].shape[1])) for _ in range(2)]
    weights = np.zeros((heads, steps, places))
    spreads, jacobians = np.zeros_like(weights), np.zeros((heads, steps, places, places))
    for h in range(heads):
        for t in range(steps):
            score = np.zeros((2, places))
            for s in range(places):
                own = tuple(part[t, head("query", h)] for part in parts["query"])
                other = tuple(part[s, head("key", h)] for part in parts["key"])
                mean, variance = dot(own, other)
                score[:, s] = mean / np.sqrt(size), variance / size
            p = np.exp(score[0]) / np.exp(score[0]).sum()
            jacobian = np.diag(p) - np.outer(p, p)
            weights[h, t], spreads[h, t] = p, jacobian**2 @ score[1]
            jacobians[h, t] = jacobian
            for k in range(parts["value"][0].shape[1] // heads):
                column = head("value", h).start + k
                moments = tuple(part[:, column] for part in parts["value"])
                mean, variance = dot((weights[h, t], spreads[h, t]), moments)
                joined[0][t, column], joined[1][t, column] = mean, variance
    outputs = dense(layers["output"], *joined)

    (q_joined, p_joined), sums = dense_back(layers["output"], joined[0], q_out, p_out)
    changes = {"output": sums}
    back = {name: np.zeros((2, *part[0].shape)) for name, part in parts.items()}
    for h in range(heads):
        values = parts["value"][0][:, head("value", h)]
        for t in range(steps):
            q, p = q_joined[t, head("value", h)], p_joined[t, head("value", h)]
            back["value"][0][:, head("value", h)] += np.outer(weights[h, t], q)
            back["value"][1][:, head("value", h)] += np.outer(weights[h, t] ** 2, p)
            q_score = jacobians[h, t] @ (values @ q) / np.sqrt(size)
            p_score = jacobians[h, t] ** 2 @ (values**2 @ p) / size
            for name, other in (("query", "key"), ("key", "query")):
                units = parts[other][0][:, head(other, h)]
                if name == "query":
                    back[name][0][t, head(name, h)] += q_score @ units
                    back[name][1][t, head(name, h)] += p_score @ units**2
                else:
                    back[name][0][:, head(name, h)] += np.outer(q_score, units[t])
                    back[name][1][:, head(name, h)] += np.outer(p_score, units[t] ** 2)
    found = {}
    for name, x in sources.items():
        found[name], changes[name] = dense_back(layers[name], x, *back[name])
    both = [a + b for a, b in zip(found["key"], found["value"], strict=True)]
    return outputs, {**changes, "inputs": (found["query"], both)}
