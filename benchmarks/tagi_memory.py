"""Peak memory of TAGI's training for a weight.

    python benchmarks/tagi_memory.py

One layer (dense, or a convolution of 3 x 3 on images of 3 x 3) of growing width learns four rows.
Each size runs in its own process, by `fit` or by `train_on_batch`, with XLA, without it, or with
`jit_compile="auto"` (for a dense layer, that means with XLA). The peak of the resident memory is a
straight line in the number of weights. Its slope, in numbers of four bytes, is what a weight costs,
including its mean and its variance.
"""

import argparse
import json
import resource
import subprocess
import sys

import numpy as np

from tfp_fnspace.benchmark import run_missing

RESULTS = "benchmarks/results/tagi_memory.json"
#: Layer -> widths; a layer of width k has k^2 weights, a convolution has nine times as many.
WIDTHS = {"dense": (2048, 4096, 6144), "convolution": (768, 1408, 2048)}


def peak(layer, width, call, jit_compile):
    """Returns the number of weights, and this process's peak of resident memory in bytes."""
    import keras

    from tfp_fnspace import likelihoods, tagi

    if layer == "dense":
        inputs = keras.Input((width,))
        outputs = tagi.Dense(width)(inputs)
        x = np.ones((4, width), "float32")
    else:
        inputs = keras.Input((3, 3, width))
        outputs = tagi.Flatten()(tagi.Conv2D(width, 3)(inputs))
        x = np.ones((4, 3, 3, width), "float32")
    noise = likelihoods.Gaussian(1.0)
    model = tagi.TAGIModel(inputs, outputs, likelihood=noise, standardize=False)
    model.compile(jit_compile=jit_compile)
    y = np.zeros((4, width), "float32")
    for _ in range(2):
        if call == "fit":
            model.fit(x, y, batch_size=2, epochs=1, verbose=0)
        else:
            model.train_on_batch(x, y)
    weights = width**2 * (1 if layer == "dense" else 9)
    return weights, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run(layer, call, jit_compile):
    """Returns the slope of the peaks, and how far they are from a straight line."""
    points = []
    for width in WIDTHS[layer]:
        command = [
            sys.executable,
            __file__,
            "--one",
            layer,
            str(width),
            call,
            json.dumps(jit_compile),
        ]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        points.append(json.loads(out.splitlines()[-1]))
    weights, peaks = np.transpose(points).astype(float)
    line = np.polynomial.Polynomial.fit(weights, peaks / 4.0, 1)
    slope = line.convert().coef[1]
    off = np.abs(line(weights) - peaks / 4.0).max() / weights.max()
    return {
        "numbers_a_weight": round(float(slope), 2),
        "off_the_line": round(float(off), 2),
        "points": points,
    }


def main():
    """Measures what is not in the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=RESULTS)
    parser.add_argument("--one", nargs=4, metavar=("LAYER", "WIDTH", "CALL", "JIT"))
    options = parser.parse_args()
    if options.one:
        layer, width, call, jit_compile = options.one
        print(json.dumps(peak(layer, int(width), call, json.loads(jit_compile))))
        return
    cells = [
        {"layer": layer, "call": call, "jit_compile": jit_compile}
        for layer in WIDTHS
        for call in ("fit", "train_on_batch")
        for jit_compile in (True, False)
    ]
    cells.append({"layer": "convolution", "call": "fit", "jit_compile": "auto"})
    for record in run_missing(options.out, cells, run):
        names = ("layer", "call", "jit_compile", "numbers_a_weight", "off_the_line")
        print({name: record[name] for name in names}, flush=True)


if __name__ == "__main__":
    main()
