"""One batch on several replicas of a `tf.distribute` strategy, with the result of one device."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from tfp_fnspace.math import random
from tfp_fnspace.typing import Seed, Tensor

_T = TypeVar("_T")
_state = threading.local()  # a replica is traced in its own thread


class Share(NamedTuple):
    """The rows of a batch that a replica has, scalars int32.

    Attributes:
        offset: Rows of the batch before those of this replica.
        count: Rows of this replica.
        total: Rows of the batch.
    """

    offset: tf.Tensor
    count: tf.Tensor
    total: tf.Tensor


def number() -> int:
    """Returns how many replicas there are, an integer; 1 without a strategy."""
    return tf.distribute.get_strategy().num_replicas_in_sync


def has_several_hosts(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the replicas of a strategy are on several hosts, in a process on each."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return False
    return bool(strategy.cluster_resolver and strategy.cluster_resolver.cluster_spec())


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process is the one that writes files, the only one on one host."""
    if not has_several_hosts(strategy):
        return True
    resolver = strategy.cluster_resolver
    chief = "chief" if "chief" in resolver.cluster_spec().jobs else "worker"
    return (resolver.task_type, resolver.task_id) == (chief, 0)


def from_hosts(strategy: tf.distribute.Strategy, numbers: list[int]) -> Any:
    """Returns the numbers of every replica, an int64 array `[R, C]`."""
    row = tf.constant([numbers], tf.int64)
    return strategy.gather(strategy.run(lambda: tf.identity(row)), axis=0).numpy()


@contextlib.contextmanager
def in_words(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Says what to do, within a `with` block, if another host does not answer any more.

    Raises:
        RuntimeError: If the connection to another host is lost.
    """
    try:
        yield
    except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError) as error:
        if not has_several_hosts(strategy):
            raise
        raise RuntimeError(
            "All hosts of a strategy must run until the end of `fit`: start all of them again, and "
            "with `BackupAndRestore` they go on after the last backup. "
            f"Received: a host that does not answer ({str(error).splitlines()[0][:200]})"
        ) from error


def summed(tensors: _T) -> _T:
    """Sums a structure of tensors over the replicas."""
    if number() == 1:
        return tensors
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tensors)


@contextlib.contextmanager
def sharing(tensors: list[Tensor], gather: bool = False) -> Iterator[list[Tensor]]:
    """Tells `weight`, `averaged` and `of_all_rows` which rows of a batch this replica has.

    A replica without rows, as in a last batch of fewer rows than replicas, gets one row of zeros
    whose weight is zero, so that no mean is empty.

    Args:
        tensors: List of tensors `[B, ...]`, the rows of this replica.
        gather: Whether every replica gets all rows of the batch, for values that are not sums over
            rows; each replica then does all of the work.

    Yields:
        List of tensors.
    """
    if number() == 1:
        yield tensors
        return
    context = tf.distribute.get_replica_context()
    if gather:
        # Data as they came have no device, which `all_gather` over hosts needs; the copy has one.
        copies = [tf.identity(tensor) for tensor in tensors]
        share, tensors = None, [context.all_gather(copy, axis=0) for copy in copies]
    else:
        count = tf.shape(tensors[0])[0]
        own = tf.one_hot(context.replica_id_in_sync_group, number(), dtype=tf.int32)
        counts = summed(count * own)
        offset = tf.reduce_sum(counts * tf.cumsum(own, exclusive=True, reverse=True))
        share = Share(offset, count, tf.reduce_sum(counts))
        missing = tf.maximum(1 - count, 0)
        tensors = [tf.pad(t, [[0, missing]] + [[0, 0]] * (t.shape.rank - 1)) for t in tensors]
    outer = getattr(_state, "share", None)
    _state.share = share
    try:
        yield tensors
    finally:
        _state.share = outer


def weight(dtype: tf.DType | str) -> Tensor:
    """Returns the weight of a mean over this replica's rows; the sum over the replicas is 1."""
    share = getattr(_state, "share", None)
    if share is None:
        return tf.constant(1.0 / number(), dtype)
    return tf.math.divide_no_nan(tf.cast(share.count, dtype), tf.cast(share.total, dtype))


def averaged(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Averages a dict of means over a replica's rows to means over the batch, on all replicas."""
    if number() == 1:
        return values
    return summed({name: value * weight(value.dtype) for name, value in values.items()})


def of_all_rows(draw: Callable[[Any], Tensor], count: int | Tensor, axis: int) -> Tensor:
    """Makes the draws for the rows of this replica that one device makes for the whole batch.

    Args:
        draw: Function of a number of rows to a tensor with as many along `axis`.
        count: Number of rows of this replica, a scalar.
        axis: Integer.

    Returns:
        The draws for the whole batch, at the rows of this replica.
    """
    share = getattr(_state, "share", None)
    if share is None:
        return draw(count)
    total = tf.maximum(share.total, 1)
    rows = tf.minimum(share.offset + tf.range(count), total - 1)  # a row of zeros is past the end
    return tf.gather(draw(total), rows, axis=axis)


def normal_of_rows(shape: Tensor, seed: Seed, dtype: tf.DType | str) -> Tensor:
    """Returns standard normal draws for the rows of this replica, see `of_all_rows`.

    Args:
        shape: Integer tensor, the shape `[..., N, D]`.
        seed: int32 tensor `[2]`.
        dtype: Floating dtype.

    Returns:
        Tensor of that shape.
    """
    return of_all_rows(
        lambda rows: random.normal(tf.concat([shape[:-2], [rows], shape[-1:]], 0), seed, dtype),
        shape[-2],
        axis=-2,
    )
