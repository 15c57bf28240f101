"""What users hand over, for the fuzzer: containers, faults and streams of the same numbers."""

import decimal

import keras
import numpy as np
import pandas as pd
import polars as pl
import tensorflow as tf

COLUMNS, TARGETS = ["size", "age", "rooms", "floor"], ["price", "rent"]


# Containers --------------------------------------------------------------------------------------


def frame(values, names=None):
    names = (COLUMNS if values.shape[1] == 4 else TARGETS) if names is None else names
    return pd.DataFrame(values, columns=names)


def polars_frame(values):
    return pl.DataFrame(values, schema=COLUMNS if values.shape[1] == 4 else TARGETS)


def objects(values, make):
    return [[make(float(value)) for value in row] for row in values]


#: Containers that hold the same numbers as a float64 array.
CONTAINERS = {
    "array": lambda v: v,
    "fortran": np.asfortranarray,
    "reversed_view": lambda v: v[::-1].copy()[::-1],
    "read_only": lambda v: np.broadcast_to(v, v.shape),
    "big_endian": lambda v: v.astype(">f8"),
    "longdouble": lambda v: v.astype(np.longdouble),
    "lists": lambda v: v.tolist(),
    "tuples": lambda v: tuple(map(tuple, v)),
    "rows": list,
    "objects": lambda v: v.astype(object),
    "decimals": lambda v: objects(v, decimal.Decimal),
    "tensor": tf.constant,
    "variable": tf.Variable,
    "frame": frame,
    "frame_without_names": pd.DataFrame,
    "frame_with_other_rows": lambda v: frame(v).set_index(np.arange(len(v))[::-1]),
    "frame_of_floats": lambda v: frame(v).astype("Float64"),
    "frame_of_objects": lambda v: frame(v).astype(object),
    "polars": polars_frame,
    "polars_to_pandas": lambda v: frame(v.copy()),
    "mask_of_nothing": lambda v: np.ma.array(v, mask=False),
    "matrix_in_a_list": lambda v: [v],
}

#: Containers that hold rounded numbers: the result is compared with the array of these.
ROUNDED = {
    "float32": lambda v: v.astype(np.float32),
    "float16": lambda v: np.clip(v, -6e4, 6e4).astype(np.float16),
    "bfloat16": lambda v: tf.cast(v, tf.bfloat16),
    "integers": lambda v: np.round(np.clip(v, -2e9, 2e9)).astype(np.int64),
    "small_integers": lambda v: np.round(np.clip(v, -100, 100)).astype(np.int8),
    "booleans": lambda v: v > 0,
    "nullable_integers": lambda v: frame(np.round(np.clip(v, -2e9, 2e9))).astype("Int64"),
    "polars_float32": lambda v: polars_frame(v.astype(np.float32)),
}


def replaced(values, value):
    changed = np.array(values, np.float64)
    changed[-1, -1] = value
    return changed


def masked(values):
    return np.ma.array(values, mask=replaced(np.zeros_like(values), 1) > 0)


def turned(names):
    return [names[1], names[0], *names[2:]]


#: Faults that must be refused.
FAULTS = {
    "nan": lambda v: replaced(v, np.nan),
    "infinite": lambda v: replaced(v, -np.inf),
    "huge": lambda v: replaced(v, 1e300),
    "masked": masked,
    "nothing": lambda v: None,
    "none_among_numbers": lambda v: [*v.tolist()[:-1], [None] * v.shape[1]],
    "na": lambda v: frame(replaced(v, np.nan)).astype("Float64"),
    "polars_null": lambda v: polars_frame(v).with_columns(
        pl.lit(None).alias("age" if v.shape[1] == 4 else "rent")
    ),
    "complex": lambda v: v + 1j,
    "dates": lambda v: (v * 1e3).astype("datetime64[s]"),
    "durations": lambda v: (v * 1e3).astype("timedelta64[s]"),
    "frame_with_dates": lambda v: frame(v).assign(
        **{"size" if v.shape[1] == 4 else "rent": pd.date_range("2020", periods=len(v))}
    ),
    "polars_with_dates": lambda v: pl.DataFrame(
        frame(v)
        .assign(
            **{
                "age" if v.shape[1] == 4 else "rent": pd.date_range(
                    "2020", periods=len(v)
                ).to_numpy()
            }
        )
        .to_dict("series")
    ),
    "strings": lambda v: v.astype(str),
    "words": lambda v: frame(v).assign(**{"age" if v.shape[1] == 4 else "rent": "red"}),
    "turned": lambda v: frame(v)[turned(list(frame(v).columns))],
    "turned_polars": lambda v: polars_frame(v).select(turned(polars_frame(v).columns)),
    "turned_numbers": lambda v: pd.DataFrame(v)[turned(list(range(v.shape[1])))],
    "other_names": lambda v: frame(v).add_suffix("_old"),
    "one_row": lambda v: v[0],
    "one_column_less": lambda v: v[:, 1:],
    "one_column_more": lambda v: np.hstack([v, v[:, :1]]),
    "no_columns": lambda v: v[:, :0],
    "no_rows": lambda v: v[:0],
    "one_axis_more": lambda v: v[np.newaxis],
    "a_number": lambda v: 1.0,
    "uneven": lambda v: [*v.tolist()[:-1], [1.0]],
    "ragged": lambda v: tf.RaggedTensor.from_tensor(v, lengths=[1] * len(v)),
    "sparse": lambda v: tf.sparse.from_dense(v),
    "symbolic": lambda v: keras.KerasTensor(v.shape),
    "records": lambda v: np.rec.fromarrays(v.T),
    "a_string": lambda v: "data.csv",
    "a_function": lambda v: np.sin,
    "a_set": lambda v: {1.0, 2.0},
    "a_dict": lambda v: {"a": v, 1: v},
    "two_arrays": lambda v: [v, v],
    "beyond_float64": lambda v: [*v.tolist()[:-1], [10**400] * v.shape[1]],
    "an_object": lambda v: [[object()] * v.shape[1]] * len(v),
}

#: Missing targets, which TAGI accepts.
MISSING = {"nan", "masked", "none_among_numbers", "na", "polars_null"}

#: Faults that the first data of some models cannot have, because these data define the columns.
OF_COLUMNS = {
    "turned",
    "turned_polars",
    "turned_numbers",
    "other_names",
    "one_column_less",
    "one_column_more",
}


# Streams -----------------------------------------------------------------------------------------


class Batches(keras.utils.PyDataset):
    """Batches by number, made of the arrays `(x,)` or `(x, y)`."""

    def __init__(self, arrays, size, hold):
        super().__init__()
        self.arrays, self.size, self.hold = arrays, size, hold

    def __len__(self):
        return -(-len(self.arrays[0]) // self.size)

    def __getitem__(self, index):
        part = slice(index * self.size, (index + 1) * self.size)
        return tuple(self.hold(array[part]) for array in self.arrays)


def generator(arrays, size, hold, passes=1):
    every = Batches(arrays, size, hold)
    for _ in range(passes):
        yield from (every[i] for i in range(len(every)))


def dataset(arrays, size, hold=None):
    return tf.data.Dataset.from_tensor_slices(tuple(arrays)).batch(size)


def dataset_of_unknown_shapes(arrays, size, hold=None):
    signature = tuple(tf.TensorSpec(None, a.dtype) for a in arrays)
    made = tf.data.Dataset.from_generator(
        lambda: generator(arrays, size, np.asarray), output_signature=signature
    )
    return made.apply(tf.data.experimental.assert_cardinality(-(-len(arrays[0]) // size)))


def endless_dataset(arrays, size, hold=None):
    return dataset(arrays, size).repeat()


#: Functions of arrays, of the rows of a batch and of the batch's container (datasets have tensors).
STREAMS = {
    "dataset": dataset,
    "dataset_of_unknown_shapes": dataset_of_unknown_shapes,
    "endless_dataset": endless_dataset,
    "PyDataset": Batches,
    "generator": generator,
}

#: Streams that start again in every epoch.
LASTING_STREAMS = ["dataset", "dataset_of_unknown_shapes", "PyDataset"]

#: Faults of arrays that a stream has in all its batches.
FAULTS_IN_STREAMS = ["nan", "infinite", "huge", "one_column_less", "one_column_more", "no_columns"]

#: Functions of arrays x and y that return streams whose batches are not pairs of inputs and
#: targets.
BAD_STREAMS = {
    "x_alone": lambda x, y: tf.data.Dataset.from_tensor_slices(x).batch(8),
    "weights_of_zero": lambda x, y: dataset((x, y, np.zeros(len(x))), 8),
    "four_parts": lambda x, y: dataset((x, y, x, y), 8),
    "dicts": lambda x, y: tf.data.Dataset.from_tensor_slices({"x": x, "y": y}).batch(8),
    "rows": lambda x, y: tf.data.Dataset.from_tensor_slices((x, y)),
    "strings": lambda x, y: dataset((x.astype(str), y), 8),
    "complex": lambda x, y: dataset((x, y + 1j), 8),
    "ragged": lambda x, y: dataset((tf.RaggedTensor.from_tensor(x, lengths=[2] * len(x)), y), 8),
    "sparse": lambda x, y: dataset((tf.sparse.from_dense(x), y), 8),
    "windows": lambda x, y: tf.data.Dataset.from_tensor_slices((x, y)).window(8),
    "numbers": lambda x, y: tf.data.Dataset.range(3),
    "empty": lambda x, y: dataset((x, y), 8).take(0),
    "empty_of_unknown_length": lambda x, y: dataset((x, y), 8).filter(lambda *_: False),
    "empty_generator": lambda x, y: generator((x[:0], y[:0]), 8, np.asarray),
    "empty_PyDataset": lambda x, y: Batches((x[:0], y[:0]), 8, np.asarray),
    "fewer_rows": lambda x, y: ((x[i : i + 8], y[i : i + 7]) for i in (0, 8)),
    "none": lambda x, y: iter([None]),
    "words": lambda x, y: iter([("red", "blue")]),
    "arrays_of_objects": lambda x, y: Batches((x, y), 8, lambda v: np.full(v.shape, object())),
}
