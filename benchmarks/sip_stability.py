"""Whether training of SIP is stable: five seeds on boston.

The data are split 0 of boston, and the protocol is that of the paper except for the batch: priors
`"bnn"` and `"neural_sampler"`, 50 inducing points, alpha 0.5, 100 samples, Adam with 1e-3 for both
optimizers, batches of 100 rows, 500 epochs, with and without adaptive contrast. Each run records
the least and the largest loss after the warm-up (nats a row), the scores of the test rows, the
accuracy of the discriminator in the last epoch, the factorisations that needed more jitter, and
what the log said.

    python benchmarks/sip_stability.py [--data-dir ../shared/data/uci]
"""

import argparse
import os
import warnings

import keras
import numpy as np

from tfp_fnspace import datasets, sip
from tfp_fnspace.benchmark import run_missing

RESULTS = "benchmarks/results/sip_stability.json"
SEEDS, EPOCHS, BATCH = range(5), 500, 100


def run(prior, adaptive_contrast, seed, data_dir):
    """Does one run."""
    split = datasets.load("boston", data_dir).split(0)
    keras.utils.set_random_seed(seed)
    divergence = sip.Adversarial(adaptive_contrast=adaptive_contrast)
    model = sip.SIPModel(prior, inducing_points=50, divergence=divergence, seed=seed)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        history = model.fit(
            split.x_train, split.y_train, batch_size=BATCH, epochs=EPOCHS, verbose=0
        ).history
    scores = model.evaluate(split.x_test, split.y_test, verbose=0, return_dict=True)
    loss = np.array(history["loss"][EPOCHS // 5 :])
    reports = {str(w.message).split(":")[0] for w in said if w.category is RuntimeWarning}
    return {
        "least_loss": round(float(loss.min()), 3),
        "largest_loss": round(float(loss.max()), 3),
        "last_loss": round(float(loss[-1]), 3),
        "log_likelihood": round(-scores["nll"], 3),
        "rmse": round(scores["rmse"], 3),
        "discriminator_accuracy": round(history["discriminator_accuracy"][-1], 3),
        "jittered": round(float(np.sum(history["jittered"])), 3),
        "said": sorted(reports),
    }


def main():
    """Runs the cells that are not in the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = os.environ.get("TFP_FNSPACE_DATA", "../shared/data")
    parser.add_argument("--data-dir", default=os.path.join(default, "uci"))
    parser.add_argument("--out", default=RESULTS)
    options = parser.parse_args()
    cells = [
        {"prior": prior, "adaptive_contrast": contrast, "seed": seed}
        for contrast in (False, True)
        for prior in ("bnn", "neural_sampler")
        for seed in SEEDS
    ]
    for record in run_missing(options.out, cells, lambda **c: run(**c, data_dir=options.data_dir)):
        names = ("prior", "adaptive_contrast", "seed", "log_likelihood", "largest_loss", "seconds")
        print({name: record[name] for name in names}, flush=True)


if __name__ == "__main__":
    main()
