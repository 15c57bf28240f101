"""Whether one set of draws may serve the step of the model and that of the discriminator.

Two normal distributions of K values stand still, q = N(0.3, 0.8^2) and p = N(0, 1) in each value. A
discriminator of the default kind learns to tell them from 100 draws of each a step, with Adam of
1e-3, as in `SIPModel`. What a step says of KL(q || p) + KL(p || q) is compared with what the same
discriminator says on 2,000 other draws, over the last 500 steps of 2,000:

- `ask_then_learn`: the discriminator is asked before it learns from the draws, as `SIPModel` does.
  The bias is 0, since it has not seen the draws; what is measured shows the spread;
- `learn_then_ask`: it is asked on the draws that it has just learned from. The bias is what
  learning moves it by on these draws less on others, which has little spread;
- `passes`: how often it learns from a set of draws, 1 as in `SIPModel`;
- `estimate`: the mean on other draws. `exact` is the closed form, which the estimate reaches as far
  as the discriminator generalises.

All are in nats: `bias`, and `error`, its standard error.

    python benchmarks/sip_sharing.py
"""

import keras
import numpy as np
import tensorflow as tf

from tfp_fnspace.benchmark import run_missing
from tfp_fnspace.math.random import fold_in, normal
from tfp_fnspace.methods.sip import networks
from tfp_fnspace.methods.sip.log_ratio import LogRatio

RESULTS = "benchmarks/results/sip_sharing.json"
MEAN, STDDEV, DRAWS, FRESH = 0.3, 0.8, 100, 2000

#: Numbers of steps before the comparison and in it.
STEPS, COMPARED = 1500, 500
SIZES, PASSES = (5, 50), (1, 5)


def draws(size, count, seed):
    """Draws q and p, `[count, size]`."""
    q, p = (normal([count, size], fold_in(seed, i), tf.float32) for i in range(2))
    return MEAN + STDDEV * q, p


def exact(size):
    """Returns the sum of both divergences in nats."""
    forward = 0.5 * (STDDEV**2 + MEAN**2 - 1.0) - np.log(STDDEV)
    reverse = 0.5 * ((1.0 + MEAN**2) / STDDEV**2 - 1.0) + np.log(STDDEV)
    return size * (forward + reverse)


def totals(size, passes):
    """Returns both divergences on the draws of a step and on others, before and after it learns.

    Returns:
        Array `[COMPARED, 2, 2]`: before and after, the same draws and others.
    """
    keras.utils.set_random_seed(0)
    layer, optimizer = LogRatio(networks.mlp(size, 1)), keras.optimizers.Adam(1e-3)
    optimizer.build(layer.trainable_variables)

    def total(q, p):
        found = layer(q, p, tf.constant([0, 0]))
        return found.forward + found.reverse

    def learn(q, p):
        for _ in range(passes):
            with tf.GradientTape() as tape:
                loss = layer(q, p, tf.constant([0, 0])).loss
            optimizer.apply(tape.gradient(loss, layer.trainable_variables))

    @tf.function(autograph=False)
    def kl_annealing(number):
        learn(*draws(size, DRAWS, fold_in(tf.constant([1, 2]), number)))

    @tf.function(autograph=False)
    def step(number):
        seed = fold_in(tf.constant([3, 4]), number)
        q, p = draws(size, DRAWS, fold_in(seed, 0))
        others = draws(size, FRESH, fold_in(seed, 1))
        before = total(q, p), total(*others)
        with tf.control_dependencies(before):
            learn(q, p)
        return before, (total(q, p), total(*others))

    for i in range(STEPS):
        kl_annealing(tf.constant(i))
    return np.array([step(tf.constant(i)) for i in range(COMPARED)])


def mean_and_error(values):
    """Averages 25 blocks, because steps that follow each other share a discriminator."""
    blocks = values.reshape(25, -1).mean(axis=1)
    return {"bias": float(values.mean()), "error": float(blocks.std(ddof=1) / 5.0)}


def run(values, passes):
    """Returns what a record says beside its cell."""
    found = totals(values, passes)
    difference = found[..., 0] - found[..., 1]  # the same draws less the others
    return {
        "ask_then_learn": mean_and_error(difference[:, 0]),
        "learn_then_ask": mean_and_error(difference[:, 1] - difference[:, 0]),
        "estimate": float(found[:, 0, 1].mean()),
        "exact": float(exact(values)),
    }


def main():
    """Runs what the results file does not have."""
    cells = [{"values": size, "passes": passes} for size in SIZES for passes in PASSES]
    for record in run_missing(RESULTS, cells, run):
        print(record)


if __name__ == "__main__":
    main()
