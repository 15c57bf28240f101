"""What a model around fitted models takes over from them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfp_fnspace.likelihoods.base import Likelihood

if TYPE_CHECKING:
    from tfp_fnspace.model.base import FunctionSpaceModel

#: What all members must agree about, since they take the same rows.
_OF_INPUTS = ("index_inputs", "input_roles", "batch_rows")


def set_up_around(
    model: "FunctionSpaceModel",
    members: Sequence["FunctionSpaceModel"],
    likelihood: Likelihood,
    num_outputs: int,
) -> None:
    """Sets up a model whose predictions are made of those of fitted models.

    It takes the same rows as its members, by the same names of columns. Its functions are drawn
    jointly if those of a member are, and they are smooth if those of all members are.

    Args:
        model: A model that is not set up.
        members: Its fitted members, at least one.
        likelihood: Its own observation model.
        num_outputs: Its number of outputs.
    """
    first = members[0]
    for name in _OF_INPUTS:
        setattr(model, name, getattr(first, name))
    model.missing_targets_allowed = all(each.missing_targets_allowed for each in members)
    model.draws_jointly = any(each.draws_jointly for each in members)
    model.draws_smooth_functions = all(each.draws_smooth_functions for each in members)
    model.served_dtype = next((each.served_dtype for each in members if each.served_dtype), None)
    model.setup(likelihood, False, 0)
    model.setup_shapes(first.input_tensors, num_outputs)
    model.units.in_users_units = list(first.units.in_users_units)
    for own, theirs in zip(model.units.scalers, first.units.scalers, strict=True):
        own.column_names = theirs.column_names
