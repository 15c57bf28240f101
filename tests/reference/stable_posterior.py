"""Oracles: the posterior of the stable process for two and three points, by 10^7 draws each.

    python tests/reference/stable_posterior.py

writes `stable_posterior.json` beside this file. A case takes about two minutes on one core; cases
that the file holds are kept. The method is importance sampling from the prior,
`stable_process.importance_posterior`. It uses no Markov chain, so samplers are tested against it.
"""

import json
import pathlib

import numpy as np
import stable_process as reference

from tfp_fnspace.methods.stable_process import hyperplanes

FILE = pathlib.Path(__file__).with_suffix(".json")
NUM_DRAWS = 10_000_000
LEVELS = np.array([-1.0, 0.0, 0.5, 1.5, 3.0])
ALPHAS = (0.7, 1.1, 1.6)
ALPHA_RANGE, NU_PRIOR = (0.4, 2.0), (0.3, 0.8)

# Each problem has x of the training points, x of new points, and y. The new points lie between and
# beyond two training points, and cut the groups into atoms with q from 1e-4 to 0.3.
PROBLEMS = {
    "two_points": ([-0.6, 0.8], [0.1, -0.1, 0.101, 3.0, -2.0, 40.0], [-0.3, 2.0]),
    "three_points": ([1.0, -1.0, 0.2], [-0.4, 0.5, 2.0, 0.2003], [2.2, 0.1, 1.9]),
    "plane": (
        [[0.0, 0.3], [1.0, -0.5], [-0.7, 0.8]],
        [[0.4, 0.0], [0.05, 0.3], [-2.0, 1.0]],
        [0.4, -1.5, 2.0],
    ),
}

# Each case has problem, alpha, nu, noise scale (None: inferred) and the noise's prior.
CASES = {
    **{
        f"{name}, alpha {alpha}": (name, alpha, 1.0, 0.5, "variance")
        for name in PROBLEMS
        for alpha in ALPHAS
    },
    "two_points, all inferred": ("two_points", ALPHA_RANGE, NU_PRIOR, None, "variance"),
    "plane, all inferred": ("plane", ALPHA_RANGE, NU_PRIOR, None, "scale"),
    "three_points, noise inferred": ("three_points", 1.1, 1.0, None, "variance"),
}


def partition_of(x, x_new):
    """Returns the exact partition of training and new points, and its signs there `[n + m, L]`."""
    points = np.concatenate([np.asarray(part, np.float64) for part in (x, x_new)])
    points = points.reshape(len(points), -1)
    partition = hyperplanes.exact(points)
    return partition, partition.signs(points).astype(np.float64)


def read():
    """Returns case -> name -> (estimate, standard error), as arrays."""
    return {
        case: {name: tuple(map(np.array, pair)) for name, pair in found.items()}
        for case, found in json.loads(FILE.read_text()).items()
    }


def main():
    """Computes the cases that are missing; the seed of a case is its position."""
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    for seed, (case, (name, *settings, noise_prior)) in enumerate(CASES.items()):
        if case in found:
            continue
        x, x_new, y = PROBLEMS[name]
        partition, signs = partition_of(x, x_new)
        truth = reference.importance_posterior(
            y,
            signs,
            partition.probabilities,
            *settings,
            NUM_DRAWS,
            seed,
            LEVELS,
            noise_prior,
        )
        print(case, "effective size", round(truth.pop("effective_size")), flush=True)
        found[case] = {
            key: [np.asarray(part).tolist() for part in pair] for key, pair in truth.items()
        }
        FILE.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
