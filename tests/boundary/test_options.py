"""Options that are objects: NumPy's numbers are saved, and what is not one of them is refused."""

import json

import keras
import numpy as np
import pytest

import tfp_fnspace as fns

#: Options with numbers as NumPy has them.
GIVEN = {
    "chains": fns.stable_process.Chains(np.int64(2), thin=np.int32(4)),
    "prior": fns.stable_process.Uniform(np.float64(0.5), np.float32(1.5)),
    "partition": fns.stable_process.Sampled(np.int64(7)),
    "kernel": fns.diwp.DeepKernel(np.int64(4), depth=np.int32(0), learn_delta=np.bool_(False)),
    "divergence": fns.fbnn.Stein(np.float32(0.5), monitor_steps=np.int64(3)),
    "adversarial": fns.sip.Adversarial(dropout=np.float32(0.25), prior_penalty=np.float64(0.5)),
    "weights": fns.sip.AdversarialOfWeights(dropout=np.float32(0.25), kl_annealing=np.float64(0.5)),
    "draws": fns.sip.PriorDraws(np.int64(5), jitter=np.float32(0.5)),
}


@pytest.mark.parametrize("name", GIVEN)
def test_numbers_of_numpy_are_saved(name):
    options = GIVEN[name]
    saved = json.loads(json.dumps(keras.saving.serialize_keras_object(options)))
    loaded = keras.saving.deserialize_keras_object(saved)
    assert loaded.get_config() == options.get_config()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (fns.stable_process.StableProcessModel, "chains=4"),
        (fns.diwp.DIWPModel, "start='greedy'"),
        (fns.sip.SIPModel, "divergence='forward'"),
        (fns.sip.SIPModel, "prior_draws=5"),
    ],
)
def test_other_values_are_refused(make, name):
    argument, _, value = name.partition("=")
    method = make.__module__.split(".")[2]
    with pytest.raises(
        TypeError, match=rf"`{argument}` must be a tfp_fnspace\.{method}\.\w+\. Rec"
    ):
        make(**{argument: json.loads(value.replace("'", '"'))})
