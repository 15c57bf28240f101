"""Draws from the spectral density of stationary kernels."""

import numpy as np

from tfp_fnspace.typing import Array, Config

#: Matern kernels -> degrees of freedom of the t distribution of their frequencies, which are twice
#: the smoothness.
_DEGREES = {"MaternOneHalf": 1, "MaternThreeHalves": 3, "MaternFiveHalves": 5}


def spectral_draws(
    description: Config, num_inputs: int, units: int, generator: np.random.Generator
) -> tuple[Array, Array]:
    r"""Draws frequencies w_u and variances v_u with `k(r) = E 1/units sum_u v_u cos(w_u . r)`.

    - For the squared exponential kernel, w is normal with standard deviation 1 / length_scale. For
      Matern kernels of smoothness nu it has a t distribution with 2 nu degrees of freedom. For the
      rational quadratic kernel it is normal with a gamma precision.
    - For `ExpSinSquared`, w is a multiple j of 2 pi / period in each input, with the weights `e^-z
      I_j(z)`, z = length_scale^-2, of the kernel's Fourier series.
    - A sum has some units for each kernel; a product has sums of independent frequencies.

    Args:
        description: Result of `kernels.description.describe`.
        num_inputs: I.
        units: U.
        generator: `np.random.Generator`.

    Returns:
        Arrays `[I, U]` and `[U]`.

    Raises:
        ValueError: If the kernel is none of these.

    References:
        Rahimi and Recht (2007), "Random features for large-scale kernel machines", NeurIPS.
        Rasmussen and Williams (2006), "Gaussian processes for machine learning", section 4.2.1.
    """
    name, parameters = description["kernel"], description["parameters"]
    shape = (num_inputs, units)
    if name == "SumKernel":
        parts = np.array_split(np.arange(units), len(parameters["kernels"]))
        if units < len(parts):
            raise ValueError(
                "A sum of kernels needs at least one feature for each kernel. "
                f"Received: units={units} for {len(parts)} kernels"
            )
        pairs = zip(parameters["kernels"], parts, strict=True)
        draws = [spectral_draws(k, num_inputs, len(part), generator) for k, part in pairs]
        shares = [v * units / len(v) for _, v in draws]
        return np.concatenate([w for w, _ in draws], axis=1), np.concatenate(shares)
    if name == "ProductKernel":
        frequencies, variances = np.zeros(shape), np.ones(units)
        for kernel in parameters["kernels"]:
            w, v = spectral_draws(kernel, num_inputs, units, generator)
            order = generator.permutation(units)
            frequencies, variances = frequencies + w[:, order], variances * v[order]
        return frequencies, variances
    if name == "FeatureScaled":
        w, v = spectral_draws(parameters["kernel"], num_inputs, units, generator)
        return w / scales_of(parameters)[:, np.newaxis], v
    if name == "Constant":
        return np.zeros(shape), np.full(units, _number(parameters, "constant"))
    length = _number(parameters, "length_scale") / _number(parameters, "inverse_length_scale")
    if name == "ExpSinSquared":
        frequencies = _harmonics(shape, length, _number(parameters, "period"), generator)
    elif name == "ExponentiatedQuadratic":
        frequencies = generator.normal(size=shape) / length
    elif name == "RationalQuadratic":
        rate = _number(parameters, "scale_mixture_rate")
        precisions = generator.gamma(rate, 1.0 / rate, size=units)
        frequencies = generator.normal(size=shape) * np.sqrt(precisions) / length
    elif name in _DEGREES:
        degrees = _DEGREES[name]
        precisions = generator.chisquare(degrees, size=units) / degrees
        frequencies = generator.normal(size=shape) / np.sqrt(precisions) / length
    else:
        raise ValueError(
            "Frequencies are known for the kernels ExponentiatedQuadratic, Matern (1/2, 3/2, 5/2), "
            "RationalQuadratic, ExpSinSquared, Constant, FeatureScaled, sums and products. "
            f"Received: kernel={name}"
        )
    return frequencies, np.full(units, _number(parameters, "amplitude") ** 2)


def _harmonics(shape, length, period, generator):
    """Draws frequencies of `exp(-2 sin^2(pi r / period) / length^2)`, in each input."""
    z = length**-2.0
    numbers = np.arange(20 + int(8.0 * np.sqrt(z)))  # the other weights are below 1e-12
    weights = _fourier_weights(len(numbers), z)
    chosen = generator.choice(numbers, size=shape, p=weights / np.sum(weights))
    return 2.0 * np.pi / period * chosen * generator.choice([-1.0, 1.0], size=shape)


def _fourier_weights(count, z):
    """Returns the first coefficients of the cosine series of `exp(z (cos a - 1))`, `[count]`.

    They are `e^-z I_0(z)` and `2 e^-z I_j(z)`, computed by a discrete transform of 2 `count`
    values. The transform adds coefficients from number `count` on to them, which the caller must
    make negligible.
    """
    angles = np.pi / count * np.arange(2 * count)
    values = np.fft.rfft(np.exp(z * (np.cos(angles) - 1.0))).real[:count] / (2 * count)
    weights = np.maximum(values, 0.0)  # rounding
    weights[1:] *= 2.0
    return weights


def scales_of(parameters: Config) -> Array:
    """Returns the scales of the inputs of a `FeatureScaled`, `[I]`, from its parameters.

    Raises:
        ValueError: If they are not a vector of positive numbers.
    """
    inverse = "inverse_scale_diag" in parameters
    key = "inverse_scale_diag" if inverse else "scale_diag"
    value = np.asarray(parameters[key]["tensor"], np.float64)
    if value.ndim != 1 or not np.all(np.isfinite(value)) or not np.all(value > 0.0):
        raise ValueError(
            "The scales of a kernel with frequencies must be a vector of positive numbers. "
            f"Received: {key}={value.tolist()}"
        )
    return 1.0 / value if inverse else value


def _number(parameters, key):
    value = np.asarray(parameters.get(key, {"tensor": 1.0})["tensor"], np.float64)
    if value.size != 1 or not np.all(np.isfinite(value)) or not np.all(value > 0.0):
        raise ValueError(
            "A kernel with frequencies must have positive numbers as parameters. "
            f"Received: {key}={value.tolist()}"
        )
    return float(value.reshape(()))
