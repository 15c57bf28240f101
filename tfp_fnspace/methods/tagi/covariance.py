r"""Full covariances in a chain of dense layers.

With a covariance S of all units of a layer, equations 10 and 12 of the paper are

    z = a W + b      mz = ma mw + mb     Sz = mw' Sa mw + diag((ma^2 + diag Sa) Sw + Sb)
    a = f(z)         Sa = J Sz J,  J = diag(slope)

for independent weights. Suppose now that all weights and biases of a layer have a covariance C,
with W and b as rows of one matrix and a_1 = (a, 1). The second term of Sz is then `sum_il E[a_1i
a_1l] C[i j, l k]`.

Innovations are a vector d and a matrix G for each row, and posterior moments are `m + S d` and `S +
S G S`. At the outputs, `d = K^-1 (y - m)` and `G = -K^-1` with `K = Sz + scale^2`. By equations 15
and 16, then,

    through a layer        d_a = mw d_z          G_a = mw G_z mw'
    an activation          d_z = J d_a           G_z = J G_a J
    independent weights    Sw_ij ma_i d_j,  Sw_ij^2 ma_i^2 G_jj  are the changes
    all weights, c = cov(w, z)    c d,  c G c'
"""

from typing import NamedTuple

import keras
import tensorflow as tf

from tfp_fnspace.math.random import fold_in, normal
from tfp_fnspace.methods.tagi import graph, update
from tfp_fnspace.methods.tagi.layers import Dense, ElementwiseLayer
from tfp_fnspace.typing import GaussianMoments


class UnitMoments(NamedTuple):
    """Mean `[N, A]` and covariance `[N, A, A]` of the units of a layer."""

    mean: tf.Tensor
    covariance: tf.Tensor


def dense_chain(network):
    """Returns the dense layers and activations of a network, in order.

    Args:
        network: Functional `keras.Model`.

    Raises:
        ValueError: If the network is not a chain of these.
    """
    steps, previous = [], list(network.inputs)
    for node in graph._nodes(network):
        if node.is_input:
            continue
        operation = node.operation
        if isinstance(operation, Dense) and operation in steps:
            raise ValueError(
                "Full covariances need a network in which every dense layer is used once. "
                f"Received: layer={operation!r}"
            )
        follows = [id(t) for t in node.input_tensors] == [id(t) for t in previous]
        if not (follows and isinstance(operation, Dense | ElementwiseLayer)):
            raise ValueError(
                "Full covariances need a network of fns.tagi.Dense and activations, one after the "
                f"other. Received: layer={operation!r}"
            )
        steps.append(operation)
        if getattr(operation, "activation", None) is not None and isinstance(operation, Dense):
            steps.append(operation.activation)
        previous = keras.tree.flatten(node.outputs)
    return steps


class CovarianceChain(keras.layers.Layer):
    """Moments and innovations with full covariances (see the module's docstring).

    Args:
        network: Functional `keras.Model` of dense layers and activations.
        joint: Whether the parameters of a layer also have a full covariance; otherwise they are
            independent.
        **kwargs: `name`, `dtype`.

    Attributes:
        correlations: Covariances of different parameters of each dense layer, `[P, P]` with P =
            (inputs + 1) units and a zero diagonal. The list is empty unless `joint`.
    """

    def __init__(self, network, joint=False, **kwargs):
        super().__init__(autocast=False, **kwargs)
        steps = dense_chain(network)
        vars(self)["steps"] = steps  # hidden from Keras: the network saves them
        self.joint = joint
        self.correlations = []
        for i, layer in enumerate(self.dense_layers if joint else []):
            size = sum(int(tf.size(pair.mean.value)) for pair in layer.parameters)
            self.correlations.append(
                self.add_weight(
                    name=f"correlations_{i}",
                    shape=(size, size),
                    initializer="zeros",
                    trainable=False,
                    autocast=False,
                )
            )
        self.built = True

    @property
    def dense_layers(self):
        """The layers with parameters."""
        return [step for step in self.steps if isinstance(step, Dense)]

    # Forward ----------------------------------------------------------------------------------

    def forward(self, mean, variance=None):
        """Returns the moments of the inputs of each step, and of the outputs.

        Args:
            mean: Tensor `[N, X]`.
            variance: Tensor that broadcasts to `[N, X]`, the variances of independent inputs, or
                `None` for exactly known inputs.

        Returns:
            List of `UnitMoments`, one longer than `steps`, and a list of the slopes of activations,
            with `None` for dense layers.
        """
        variance = tf.zeros_like(mean) + (0.0 if variance is None else variance)
        seen, slopes = [UnitMoments(mean, tf.linalg.diag(variance))], []
        for step in self.steps:
            dense = isinstance(step, Dense)
            units, slope = (self._dense if dense else _activate)(step, *seen[-1])
            seen.append(units)
            slopes.append(slope)
        return seen, slopes

    def moments(self, mean, variance=None):
        """Returns `GaussianMoments` of the outputs; the arguments are those of `forward`."""
        out = self.forward(mean, variance)[0][-1]
        return GaussianMoments(out.mean, tf.maximum(tf.linalg.diag_part(out.covariance), 0.0))

    def _dense(self, layer, mean, covariance):
        kernel = layer.kernel_mean.value
        out_mean = tf.matmul(mean, kernel)
        if layer.use_bias:
            out_mean += layer.bias_mean.value
        out = tf.einsum("nil,ij,lk->njk", covariance, kernel, kernel)
        if self.joint:
            rows = _with_one(layer, mean)
            second = tf.einsum("ni,nl->nil", rows, rows)
            extra = rows.shape[1] - mean.shape[1]
            second += tf.pad(covariance, [[0, 0], [0, extra], [0, extra]])
            out += tf.einsum("nil,ijlk->njk", second, self._parameter_covariance(layer))
        else:
            second = tf.square(mean) + tf.linalg.diag_part(covariance)
            own = tf.matmul(second, layer.kernel_variance.value)
            if layer.use_bias:
                own += layer.bias_variance.value
            out += tf.linalg.diag(own)
        return UnitMoments(out_mean, out), None

    def _parameter_covariance(self, layer):
        """Returns `[I, J, I, J]` for J units and I inputs, including that of the bias."""
        flat = self.correlations[self.dense_layers.index(layer)].value
        variances = [tf.reshape(pair.variance.value, [-1]) for pair in layer.parameters]
        full = tf.linalg.set_diag(flat, tf.concat(variances, axis=0))
        shape = [full.shape[0] // layer.units, layer.units]
        return tf.reshape(full, [*shape, *shape])

    # Backward ---------------------------------------------------------------------------------

    def innovations(self, mean, variance, targets, observed, noise_variance):
        """Returns the moments and innovations of all units.

        Args:
            mean: Tensor `[N, X]`.
            variance: As for `forward`.
            targets: Tensor `[N, D]`.
            observed: Boolean tensor `[N, D]`.
            noise_variance: `[]` or `[D]`.

        Returns:
            A list of `UnitMoments`, and a list of pairs of d `[N, A]` and G `[N, A, A]`, both from
            the inputs to the outputs.
        """
        seen, slopes = self.forward(mean, variance)
        pairs = [output_innovation(seen[-1], targets, observed, noise_variance)]
        for step, slope in zip(self.steps[::-1], slopes[::-1], strict=True):
            vector, matrix = pairs[0]
            if slope is None:
                kernel = step.kernel_mean.value
                vector = tf.matmul(vector, kernel, transpose_b=True)
                matrix = tf.einsum("ij,njk,lk->nil", kernel, matrix, kernel)
            else:
                vector, matrix = slope * vector, _on_both_sides(slope, matrix)
            pairs.insert(0, (vector, matrix))
        return seen, pairs

    def learn(self, mean, variance, targets, observed, noise_variance, trainable):
        """Sums the innovations of independent parameters; joint parameters are updated here.

        Args:
            mean: As for `innovations`, and so are the next four.
            variance: See above.
            targets: See above.
            observed: See above.
            noise_variance: See above.
            trainable: List of the layers to learn.

        Returns:
            `GaussianMoments` of the outputs before the update, and a list of tensors: the sums over
            the rows for mean and variance, for each parameter of `trainable`. The list is empty if
            the parameters of a layer are joint, since their update takes one row.
        """
        seen, pairs = self.innovations(mean, variance, targets, observed, noise_variance)
        sums = []
        for step, units, pair in zip(self.steps, seen[:-1], pairs[1:], strict=True):
            if not any(step is layer for layer in trainable):
                continue
            if self.joint:
                self._update_joint(step, units.mean, pair)
                continue
            vector, own = pair[0], tf.linalg.diag_part(pair[1])
            sums.append(tf.matmul(units.mean, vector, transpose_a=True))
            sums.append(tf.matmul(tf.square(units.mean), own, transpose_a=True))
            if step.use_bias:
                sums += [tf.reduce_sum(vector, axis=0), tf.reduce_sum(own, axis=0)]
        out = seen[-1]
        return GaussianMoments(out.mean, tf.linalg.diag_part(out.covariance)), sums

    def _update_joint(self, layer, mean, innovation):
        """Applies equation 16 to all parameters of a layer, for one row."""
        vector, matrix = innovation
        covariance = self._parameter_covariance(layer)
        cross = tf.einsum("ijlk,nl->nijk", covariance, _with_one(layer, mean))  # cov(w, z)
        size = covariance.shape[0] * covariance.shape[1]
        cross = tf.reshape(cross[0], [size, -1])
        full = tf.reshape(covariance, [size, size])
        step = tf.linalg.matvec(cross, vector[0])
        full += tf.matmul(tf.matmul(cross, matrix[0]), cross, transpose_b=True)
        full = 0.5 * (full + tf.transpose(full))
        start = 0
        for pair in layer.parameters:
            end = start + pair.mean.shape.num_elements()
            shape = tf.shape(pair.mean.value)
            old = pair.variance.value
            new = tf.reshape(tf.linalg.diag_part(full)[start:end], shape)
            pair.mean.assign_add(tf.reshape(step[start:end], shape))
            pair.variance.assign(tf.where(new > 0.0, new, update.SMALLEST_SHARE * old))
            start = end
        flat = self.correlations[self.dense_layers.index(layer)]
        flat.assign(tf.linalg.set_diag(full, tf.zeros_like(full[0])))

    # Draws ------------------------------------------------------------------------------------

    def sample(self, inputs, num_samples, seed):
        """Evaluates the network for each of S draws of joint parameters.

        Args:
            inputs: Tensor `[S, N, X]`.
            num_samples: S.
            seed: int32 tensor `[2]`.

        Returns:
            Tensor `[S, N, D]`.
        """
        values = inputs
        for i, step in enumerate(self.steps):
            if not isinstance(step, Dense):
                values = step.function(values)
                continue
            covariance = self._parameter_covariance(step)
            shape = covariance.shape[:2]
            flat = tf.reshape(covariance, [shape.num_elements()] * 2)
            noise = normal([num_samples, flat.shape[0]], fold_in(seed, i), flat.dtype)
            own = tf.linalg.diag_part(flat)
            # Rounding may leave a matrix that is not positive definite.
            root = tf.linalg.cholesky(tf.linalg.set_diag(flat, own + 1e-5 * tf.reduce_mean(own)))
            noise = tf.reshape(tf.matmul(noise, root, transpose_b=True), [num_samples, *shape])
            rows = step.kernel_mean.shape[0]
            kernel = step.kernel_mean.value + noise[:, :rows]
            values = tf.matmul(values, kernel)
            if step.use_bias:
                values += step.bias_mean.value + noise[:, rows:]
        return values


def output_innovation(units, targets, observed, noise_variance):
    """Returns `K^-1 (y - m)` and `-K^-1` with the covariance K of the observed targets.

    They are 0 for the other targets.

    Args:
        units: `UnitMoments` of the outputs.
        targets: Tensor `[N, D]`.
        observed: Boolean tensor `[N, D]`.
        noise_variance: `[]` or `[D]`.

    Returns:
        Tensors `[N, D]` and `[N, D, D]`.
    """
    weight = tf.cast(observed, targets.dtype)
    noise = weight * noise_variance + (1.0 - weight)
    covariance = _on_both_sides(weight, units.covariance) + tf.linalg.diag(noise)
    identity = tf.linalg.diag(tf.ones_like(targets))
    inverse = tf.linalg.cholesky_solve(tf.linalg.cholesky(covariance), identity)
    inverse = _on_both_sides(weight, inverse)
    residual = tf.where(observed, targets - units.mean, tf.zeros_like(targets))
    return tf.linalg.matvec(inverse, residual), -inverse


def _activate(step, mean, covariance):
    """Returns linearised covariances, with the variances of the activation."""
    variance = tf.linalg.diag_part(covariance)
    out_mean, out_variance, slope = step.moments(mean, variance)
    return (
        UnitMoments(out_mean, tf.linalg.set_diag(_on_both_sides(slope, covariance), out_variance)),
        slope,
    )


def _on_both_sides(vector, matrix):
    """Returns `diag(v) M diag(v)` for `[N, A]` and `[N, A, A]`."""
    return vector[:, :, tf.newaxis] * matrix * vector[:, tf.newaxis, :]


def _with_one(layer, mean):
    """Appends the 1 that belongs to the bias to the inputs."""
    return tf.concat([mean, tf.ones_like(mean[:, :1])], axis=1) if layer.use_bias else mean
