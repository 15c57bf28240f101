"""Runs the programs of `programs.py` by JAX, on the accelerator that JAX finds, or on the CPU.

`python benchmarks/gpu/run.py DIR [--out FILE]` needs NumPy and JAX only. It checks the outputs
against those of TensorFlow, in standard deviations of the output's entries (numbers that hardly
vary are compared with their size), and prints the microseconds of a step, FLOP/s and bytes/s, and
their shares of what a matrix product and a copy reach on the same device. It fails if an output
differs by more than 1e-4. FLOPs and bytes are XLA's own estimates of the compiled program, in
which loops count once.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("JAX_ENABLE_X64", "1")  # standardisation is in float64

import jax
import jax.extend.backend
import jax.numpy as jnp
import numpy as np
from jax._src.lib import _jax, xla_client

#: The most that an output may differ, in standard deviations.
_TOLERANCE = 1e-4

#: Calls before the timed ones, and how many of these; the median counts.
_WARM_UP, _CALLS = 3, 20


def load(path):
    """Compiles a program for the first device.

    Returns:
        The executable, a function that puts its arguments on the device, and the arrays of the
        `.npz` file. A step may write over the variables among its arguments.
    """
    arrays = np.load(path.with_suffix(".npz"))
    program = _jax.mlir.hlo_to_stablehlo(path.read_bytes())
    devices = xla_client.DeviceList(tuple(jax.devices()[:1]))
    backend = jax.extend.backend.get_backend()
    executable = backend.compile_and_load(program, devices, xla_client.CompileOptions())
    values = [arrays[f"in{i}"] for i in range(sum(name.startswith("in") for name in arrays.files))]
    return executable, lambda: [jax.device_put(value) for value in values], arrays


def difference(found, expected):
    """Returns the largest difference of numbers in standard deviations, see above."""
    if not np.issubdtype(expected.dtype, np.floating):
        return 0.0 if np.array_equal(found, expected) else np.inf
    spread, size = np.std(expected), np.max(np.abs(expected), initial=0.0)
    scale = max(spread if spread > 1e-3 * size else size, 1e-6)
    return float(np.max(np.abs(found - expected), initial=0.0) / scale)


def largest_difference(executable, arguments, arrays):
    """Returns the largest difference of an output from that of TensorFlow."""
    names = [name for name in arrays.files if name.startswith("out")]
    # After these outputs come the variables that a step assigns.
    found = executable.execute(arguments())[: len(names)]
    return max(difference(np.asarray(f), arrays[f"out{i}"]) for i, f in enumerate(found))


def seconds(run, arguments):
    """Returns the median time of a call, without that of putting its arguments on the device."""
    times = []
    for _ in range(_WARM_UP + _CALLS):
        given = jax.block_until_ready(arguments())
        begin = time.perf_counter()
        jax.block_until_ready(run(given))
        times.append(time.perf_counter() - begin)
    return float(np.median(times[_WARM_UP:]))


def limits():
    """Returns the FLOP/s of a product of float32 matrices and the bytes/s of a copy."""
    size = 8192 if jax.default_backend() != "cpu" else 2048
    square = jnp.ones([size, size], jnp.float32)
    product, copy = jax.jit(lambda a: a @ a), jax.jit(lambda a: a + 1.0)
    flops = 2.0 * size**3 / seconds(product, lambda: square)
    return flops, 2.0 * square.nbytes / seconds(copy, lambda: square)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    options = parser.parse_args()
    most_flops, most_bytes = limits()
    device = jax.devices()[0]
    print(f"{device.device_kind}: {most_flops:.3g} FLOP/s, {most_bytes:.3g} bytes/s", flush=True)
    rows = {}
    for path in sorted(options.folder.glob("*.hlo")):
        executable, arguments, arrays = load(path)
        error = largest_difference(executable, arguments, arrays)
        step = seconds(executable.execute, arguments)
        cost = executable.cost_analysis()
        cost = cost[0] if isinstance(cost, list) else cost
        flops, moved = (float(cost.get(name, 0.0)) / step for name in ("flops", "bytes accessed"))
        rows[path.stem] = {
            "microseconds": 1e6 * step,
            "flops_per_second": flops,
            "bytes_per_second": moved,
            "difference": error,
        }
        print(
            f"{path.stem:24} {1e6 * step:10.1f} us {flops:9.2g} FLOP/s ({flops / most_flops:6.2%}) "
            f"{moved:9.2g} bytes/s ({moved / most_bytes:6.2%}), differs by {error:.1g} sd",
            flush=True,
        )
    if options.out is not None:
        found = {"device": device.device_kind, "jax": jax.__version__, "steps": rows}
        found |= {"matmul_flops_per_second": most_flops, "copy_bytes_per_second": most_bytes}
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return int(any(row["difference"] > _TOLERANCE for row in rows.values()) or not rows)


if __name__ == "__main__":
    sys.exit(main())
