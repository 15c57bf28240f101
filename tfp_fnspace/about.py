"""What a method says of itself: the tables of the documentation are made from it."""

from collections.abc import Mapping
from dataclasses import dataclass

#: Key in `About.facts`, in the order of the table that sets the methods side by side.
FACTS = (
    "belief",
    "inference",
    "away from the data",
    "rows",
    "inputs",
    "tuning",
    "function draws",
)


@dataclass(frozen=True, kw_only=True)
class About:
    """What a method says of itself, as `ABOUT` in the package of the method.

    Attributes:
        title: Name of the method in prose.
        model: Name of its model in the package.
        idea: What is special in it, half a sentence.
        learns: How its estimator learns.
        facts: A few words for each of `FACTS`.
        time: Time of an epoch in the number of rows.
        minibatches: Whether it learns from batches: `"yes"`, or `"no"` and why.
        streams: Whether it learns from datasets and generators.
        likelihoods: Names of the classes in `tfp_fnspace.likelihoods` that its model takes.
        learns_noise: Whether `Gaussian(trainable=True)` is one of them.
        missing_targets: Whether NaN in the targets stands for a missing value.
        others: Titles of other models in the package that share its time and likelihoods.
    """

    title: str
    model: str
    idea: str
    learns: str
    facts: Mapping[str, str]
    time: str
    minibatches: str
    streams: bool
    likelihoods: tuple[str, ...]
    learns_noise: bool
    missing_targets: bool
    others: tuple[str, ...] = ()
