"""A model on two replicas of a strategy has the weights, losses and scores of one device."""

import pytest
from elsewhere import run_elsewhere
from exhaustive import sample_of

REPLICAS = """
import sys

import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

import replicated

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
replicated.compare(sys.argv[1:], strategy)

model = replicated.MODELS["function"]()
with strategy.scope():
    try:
        model.fit(replicated.x, replicated.y)
    except ValueError as error:
        assert "must have been made there. Received: VariationalModel" in str(error)
    else:
        raise AssertionError("made outside of the scope")
print("done")
"""


#: One model for each way to learn: gradients of a bound, a discriminator too, moments, all rows.
IN_ALL = ("function", "SIP", "TAGI", "stable")
OTHERS = [
    ("flipout", "fBNN", "closed_form", "linearized", "AADM"),
    ("DIWP", "power", "VIP", "noise"),
]


@pytest.mark.slow
@pytest.mark.parametrize("names", sample_of([IN_ALL, *OTHERS], [IN_ALL]), ids="-".join)
def test_two_replicas_equal_one_device(names):
    run_elsewhere(REPLICAS, *names)
