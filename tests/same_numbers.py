"""Do numbers move? Predictions of small fits before and after a change that must not move them.

`python tests/same_numbers.py write build/before.npz` at one commit, and at another one
`python tests/same_numbers.py compare build/before.npz`, which fails if a number differs by more
than 1e-6 of the standard deviation of its prediction. Both run on the same machine.
"""

import argparse
import os
import sys
import tempfile

import batteries
import keras
import numpy as np
import tensorflow as tf

#: The fits: every model, with two seeds, by arrays and by datasets where the method takes these.
SEEDS, FORMS = (0, 1), ("arrays", "dataset")

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(50, 4))
Y = np.stack([np.sin(X[:, 0]) + X[:, 1], 5.0 * X[:, 2] ** 2], axis=1)
Y = Y + 0.1 * GENERATOR.normal(size=Y.shape)
NEW = GENERATOR.normal(size=(20, 4))
TARGETS = Y[:20]


def numbers(name, seed, form, folder):
    """Yields the numbers of one fit: pairs of a name and an array."""
    keras.utils.set_random_seed(seed)
    model = batteries.ALL_MODELS[name](seed=seed)
    if form == "dataset":
        rows = (X.astype(np.float32), Y.astype(np.float32))
        data, batch_size = tf.data.Dataset.from_tensor_slices(rows).batch(16), None
        history = batteries.fit(model, data, None, epochs=3)
    else:
        batch_size = None if name in batteries.MODELS_OF_ALL_ROWS else 16
        history = batteries.fit(model, X, Y, batch_size, epochs=3)
    for key, values in history.history.items():
        if not key.endswith("seconds"):
            yield f"history {key}", np.asarray(values, np.float64)
    path = os.path.join(folder, "model.keras")
    model.save(path)
    for state, each in (("fitted", model), ("restored", keras.models.load_model(path))):
        for key, values in each.predict(NEW, verbose=0).items():
            yield f"{state} {key}", values
        yield f"{state} functions", each.sample_functions(NEW, 5, seed=3)
        density = each.predict_distribution(NEW).log_prob(TARGETS)
        yield f"{state} log_prob", np.asarray(density)


def all_numbers():
    """Returns the numbers of all fits, by name."""
    found = {}
    for name in batteries.ALL_MODELS:
        forms = FORMS[:1] if name in batteries.MODELS_OF_ALL_ROWS else FORMS
        for seed in SEEDS:
            for form in forms:
                with tempfile.TemporaryDirectory() as folder:
                    for key, values in numbers(name, seed, form, folder):
                        found[f"{name} seed {seed} {form} {key}"] = np.asarray(values)
                print(f"{name} seed {seed} {form}", flush=True)
    return found


def largest_difference(before, after, stddev):
    """Returns the largest difference in units of a standard deviation, or infinity."""
    if before.shape != after.shape:
        return np.inf
    difference = np.abs(before.astype(np.float64) - after) / stddev
    return float(np.max(np.where(before == after, 0.0, difference)))  # NaN stays one


def unit_of(key, numbers):
    """Returns what a difference is divided by: the spread of predictions, or the size of others."""
    head, _, last = key.rpartition(" ")
    if last in ("mean", "stddev", "epistemic_stddev", "aleatoric_stddev", "functions"):
        return np.asarray(numbers[f"{head} stddev"], np.float64)
    return np.maximum(np.max(np.abs(numbers[key])), 1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["write", "compare"])
    parser.add_argument("path")
    parser.add_argument("--tolerance", type=float, default=1e-6)
    arguments = parser.parse_args()
    found = all_numbers()
    if arguments.action == "write":
        os.makedirs(os.path.dirname(arguments.path) or ".", exist_ok=True)
        np.savez(arguments.path, **found)
        print(f"{len(found)} arrays written to {arguments.path}")
        return 0
    with np.load(arguments.path) as file:
        before = dict(file)
    moved = sorted(set(before) ^ set(found))
    largest = 0.0
    for key in sorted(set(before) & set(found)):
        difference = largest_difference(before[key], found[key], unit_of(key, before))
        largest = max(largest, difference)
        if not difference <= arguments.tolerance:
            moved.append(f"{key}: {difference:.3g}")
    print("\n".join(moved))
    print(f"{len(found)} arrays, {len(moved)} moved, largest difference {largest:.3g}")
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main())
