"""Kernels of Gram matrices: base class, linear and constant kernels, sums and products."""

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, Self

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_fnspace.kernels.checks import (
    check_blocks,
    check_broadcast,
    check_class_name,
    check_parameter,
    check_square,
)
from tfp_fnspace.math import linalg
from tfp_fnspace.typing import ArrayLike, Config, GramBlocks, Tensor

tfpk = tfp.math.psd_kernels

_CLASSES = {}  # public kernels by name


class GramKernel:
    """A kernel that depends on two points only through Gram entries: `k(G_xx, G_xy, G_yy)`.

    With features `X` `[N, D]`, for example of one layer of a network, the Gram matrix is `G = X X^T
    / D` (equation 5a). Kernels of inner products and of distances are functions of it. With R the
    squared distance divided by D,

        R = G_xx - 2 G_xy + G_yy                                                      (17)

    They can therefore be applied to a Gram matrix that was sampled and has no features.

    Subclasses define `_entries`, `_diagonal` and `_psd_kernel` without the amplitude, which this
    class applies. Parameters may be Python numbers or tensors, so that a layer can make the kernel
    in its `call` from its weights.

    Args:
        **parameters: Scalar parameters by name, which become attributes. A value of None means that
            the parameter is left out. The kernel is multiplied by the square of `amplitude`.

    Raises:
        ValueError: If a parameter is not a scalar, or is known and not positive and finite.

    Example:
    ```python
    kernel = 0.5 * kernels.ArcCosine(order=1) + kernels.SquaredExponential(length_scale=2.0)
    gram = tf.constant([[1.0, 0.3], [0.3, 2.0]])
    kernel.matrix(gram)  # [2, 2]
    kernel.entries(1.0, 0.3, 2.0)  # its entry [0, 1]
    ```

    References:
        Aitchison, Yang and Ober (2021), "Deep kernel processes", ICML, section 4.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if not cls.__name__.startswith("_"):
            check_class_name(cls, _CLASSES.get(cls.__name__, cls))
            _CLASSES[cls.__name__] = cls

    # This makes NumPy leave `2.0 * kernel` to the kernel.
    __array_ufunc__ = None

    def __init__(self, **parameters: ArrayLike | None):
        for name, value in parameters.items():
            check_parameter(name, value)
            setattr(self, name, value)
        self._parameter_names = tuple(parameters)

    def entries(self, g_xx: ArrayLike, g_xy: ArrayLike, g_yy: ArrayLike) -> Tensor:
        """Computes kernel values, entry by entry.

        Args:
            g_xx: Floating tensor that broadcasts to the shape of `g_xy`: `|x|^2 / D`.
            g_xy: Floating tensor: `x . y / D`.
            g_yy: As `g_xx`: `|y|^2 / D`.

        Returns:
            Tensor of the shape of `g_xy`. Its gradient is finite at equal, opposite and zero
            inputs; each kernel documents its value there.

        Raises:
            TypeError: If `g_xy` is not floating.
            ValueError: If the other arguments do not broadcast to its shape.
        """
        g_xy = tf.convert_to_tensor(g_xy)
        if not g_xy.dtype.is_floating:
            raise TypeError(f"`g_xy` must be floating. Received: dtype={g_xy.dtype.name}")
        g_xx, g_yy = (tf.convert_to_tensor(g, dtype=g_xy.dtype) for g in (g_xx, g_yy))
        check_broadcast(g_xx, g_xy, g_yy)
        return self._with_amplitude(self._entries(g_xx, g_xy, g_yy))

    def diagonal(self, g_xx: ArrayLike) -> Tensor:
        """Computes the kernel values of points with themselves, exactly and cheaply.

        Args:
            g_xx: Floating tensor.

        Returns:
            Tensor of the same shape.
        """
        return self._with_amplitude(self._diagonal(tf.convert_to_tensor(g_xx)))

    def matrix(self, gram: ArrayLike) -> Tensor:
        """Computes the kernel matrix of a Gram matrix, with an exact diagonal.

        The result is symmetric up to the last bit.

        Args:
            gram: Symmetric tensor `[..., P, P]`.

        Returns:
            Tensor `[..., P, P]`.

        Raises:
            ValueError: If the matrix is not square.
        """
        gram = tf.convert_to_tensor(gram)
        check_square(gram)
        return self._matrix(*linalg.with_diagonal(gram))

    def _matrix(self, gram, norms):
        values = self._between(norms, gram, norms)
        return tf.linalg.set_diag(values, self.diagonal(norms))

    def _between(self, row_norms, inner, column_norms):
        return self.entries(tf.expand_dims(row_norms, -1), inner, tf.expand_dims(column_norms, -2))

    def blocks(self, blocks: GramBlocks | Sequence[Tensor]) -> GramBlocks:
        """Computes the kernel matrix of a Gram matrix in blocks.

        Args:
            blocks: `GramBlocks`, or a list of its three parts. If `tt` has the rank of `it`, it is
                a full matrix; if its rank is one less, it is a diagonal.

        Returns:
            `GramBlocks` of the same shapes.

        Raises:
            ValueError: If the shapes do not match each other.
        """
        ii, it, tt = (tf.convert_to_tensor(block) for block in blocks)
        check_blocks(ii, it, tt)
        is_full = tt.shape.rank == it.shape.rank
        ii, norms_i = linalg.with_diagonal(ii)
        tt, norms_t = linalg.with_diagonal(tt) if is_full else (tt, tt)
        return GramBlocks(
            ii=self._matrix(ii, norms_i),
            it=self._between(norms_i, it, norms_t),
            tt=self._matrix(tt, norms_t) if is_full else self.diagonal(tt),
        )

    def psd_kernel(
        self, num_features: int, feature_ndims: int = 1, dtype: tf.DType | str = tf.float32
    ) -> Any:
        """Returns the same kernel as a function of features, for TFP's Gaussian processes.

        `kernel.psd_kernel(D).matrix(X, X)` is `kernel.matrix(X X^T / D)`.

        Args:
            num_features: D, an integer: the size of all feature axes together.
            feature_ndims: Number of axes of a point that hold features.
            dtype: Floating dtype of the parameters, and thus of the features.

        Returns:
            `tfp.math.psd_kernels.PositiveSemidefiniteKernel`.

        Raises:
            ValueError: If `num_features` is not positive.
        """
        if num_features < 1:
            raise ValueError(
                f"`num_features` must be at least 1. Received: num_features={num_features}"
            )
        return self._psd_kernel(num_features, feature_ndims, tf.as_dtype(dtype))

    def get_config(self) -> Config:
        """Returns the parameters as Python numbers, from which `from_config` makes an equal kernel.

        Returns:
            Dictionary.

        Raises:
            ValueError: If a parameter is a tensor without a value, for example inside a
                `tf.function`.
        """
        return {name: self._number(name) for name in self._parameter_names}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Returns a kernel from the result of `get_config`.

        Args:
            config: Dictionary.

        Returns:
            Kernel of this class.
        """
        return cls(**config)

    def _entries(self, g_xx, g_xy, g_yy):
        raise NotImplementedError

    def _diagonal(self, g_xx):
        raise NotImplementedError

    def _psd_kernel(self, num_features, feature_ndims, dtype):
        raise NotImplementedError

    def _parameter(self, name, dtype):
        """Returns a parameter as a tensor, or None."""
        value = getattr(self, name, None)
        return None if value is None else tf.cast(value, dtype)

    def _number(self, name):
        value = getattr(self, name)
        if value is None:
            return None
        known = tf.get_static_value(tf.convert_to_tensor(value))
        if known is None:
            raise ValueError(
                f"`{name}` must have a value to be serialised. Received: {name}={value}"
            )
        return known.item()

    def _with_amplitude(self, values):
        amplitude = self._parameter("amplitude", values.dtype)
        return values if amplitude is None else tf.square(amplitude) * values

    def __add__(self, other):
        return Sum([self, _as_kernel(other)])

    def __radd__(self, other):
        return Sum([_as_kernel(other), self])

    def __mul__(self, other):
        return Product([self, _as_kernel(other)])

    def __rmul__(self, other):
        return Product([_as_kernel(other), self])


class Linear(GramKernel):
    """The Gram matrix itself: `k = amplitude^2 G_xy`.

    Args:
        amplitude: Positive scalar; None is 1.
    """

    def __init__(self, amplitude: ArrayLike | None = None):
        super().__init__(amplitude=amplitude)

    def _entries(self, g_xx, g_xy, g_yy):
        return g_xy

    def _diagonal(self, g_xx):
        return g_xx

    def _psd_kernel(self, num_features, feature_ndims, dtype):
        amplitude = self._parameter("amplitude", dtype)
        slope = tf.constant(1.0 / math.sqrt(num_features), dtype)
        slope = slope if amplitude is None else amplitude * slope
        return tfpk.Linear(slope_amplitude=slope, feature_ndims=feature_ndims)


class Constant(GramKernel):
    """The same value for all pairs of points, which is a bias in a sum and a scale in a product.

    Args:
        value: Positive scalar.
    """

    def __init__(self, value: ArrayLike = 1.0):
        super().__init__(value=value)

    def _entries(self, g_xx, g_xy, g_yy):
        return self._diagonal(g_xy)

    def _diagonal(self, g_xx):
        return tf.fill(tf.shape(g_xx), self._parameter("value", g_xx.dtype))

    def _psd_kernel(self, num_features, feature_ndims, dtype):
        return tfpk.Constant(self._parameter("value", dtype), feature_ndims=feature_ndims)


class _Composition(GramKernel):
    """Several kernels combined by one operation.

    Args:
        kernels: List of `GramKernel`.

    Raises:
        TypeError: If one of them is not a kernel.
        ValueError: If there are no kernels.
    """

    _join = None  # of two tensors, and of two TFP kernels

    def __init__(self, kernels: Sequence[GramKernel]):
        super().__init__()
        self.kernels = tuple(kernels)
        if not self.kernels:
            raise ValueError(f"`kernels` must not be empty. Received: kernels={kernels}")
        for kernel in self.kernels:
            if not isinstance(kernel, GramKernel):
                raise TypeError(f"`kernels` must be Gram kernels. Received: kernels={kernels}")

    def get_config(self) -> Config:
        return {"kernels": [serialize(kernel) for kernel in self.kernels]}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls([deserialize(kernel) for kernel in config["kernels"]])

    def _joined(self, of_kernel):
        return functools.reduce(type(self)._join, map(of_kernel, self.kernels))

    def _entries(self, g_xx, g_xy, g_yy):
        return self._joined(lambda kernel: kernel.entries(g_xx, g_xy, g_yy))

    def _diagonal(self, g_xx):
        return self._joined(lambda kernel: kernel.diagonal(g_xx))

    def _psd_kernel(self, num_features, feature_ndims, dtype):
        return self._joined(lambda kernel: kernel.psd_kernel(num_features, feature_ndims, dtype))


class Sum(_Composition):
    """`k = k_1 + k_2 + ...`, the result of `kernel_1 + kernel_2` and of `kernel + 0.1`.

    Args:
        kernels: List of `GramKernel`.

    Raises:
        TypeError: If one of them is not a kernel.
        ValueError: If there are no kernels.
    """

    _join = staticmethod(operator.add)


class Product(_Composition):
    """`k = k_1 k_2 ...`, the result of `kernel_1 * kernel_2` and of `2.0 * kernel`.

    Args:
        kernels: List of `GramKernel`.

    Raises:
        TypeError: If one of them is not a kernel.
        ValueError: If there are no kernels.
    """

    _join = staticmethod(operator.mul)


def serialize(kernel: GramKernel) -> Config:
    """Converts a kernel to a dictionary of plain Python values.

    Args:
        kernel: `GramKernel`.

    Returns:
        Dictionary with the keys `class_name` and `config`.
    """
    return {"class_name": type(kernel).__name__, "config": kernel.get_config()}


def deserialize(config: Config) -> GramKernel:
    """Returns a kernel from the result of `serialize`.

    Args:
        config: Dictionary with the keys `class_name` and `config`.

    Returns:
        `GramKernel`.

    Raises:
        ValueError: If the dictionary lacks a key, or there is no such class.
    """
    if set(config) != {"class_name", "config"} or config["class_name"] not in _CLASSES:
        raise ValueError(
            "A kernel's configuration must have the keys `class_name`, one of "
            f"{sorted(_CLASSES)}, and `config`. Received: config={config}"
        )
    return _CLASSES[config["class_name"]].from_config(config["config"])


def _as_kernel(value):
    return value if isinstance(value, GramKernel) else Constant(value)
