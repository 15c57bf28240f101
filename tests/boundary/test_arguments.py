"""Checks of single arguments: what they accept, what they refuse, and their error texts."""

import re
from fractions import Fraction

import numpy as np
import pytest
import tensorflow as tf

from tfp_fnspace.boundary import arguments

NOT_NUMBERS = [
    np.timedelta64(3, "s"),
    True,
    np.True_,
    "1",
    None,
    1j,
    [1.0],
    np.array(1.0),
    np.ones(2),
]
NOT_FINITE = [np.nan, np.inf, -np.inf, np.float32(np.inf), 10**400, -(10**400)]


def refused(function, *values, **options):
    """Returns the message of a refusal, which has the name and the value at its end."""
    with pytest.raises(ValueError) as caught:
        function("size", *values, **options)
    message = str(caught.value)
    assert message.endswith(f" Received: size={values[0]!r}")
    return message[: message.index(" Received")]


@pytest.mark.parametrize("value", [0, -1.5, np.inf, np.int8(3), np.float32(2), Fraction(2)])
def test_numbers(value):
    assert arguments.is_number(value)


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
def test_what_is_no_number(value):
    assert not arguments.is_number(value)
    assert refused(arguments.checked_number, value) == "`size` must be a finite number."
    assert refused(arguments.checked_positive, value) == "`size` must be a positive finite number."
    assert refused(arguments.check_count, value) == "`size` must be a positive integer."


@pytest.mark.parametrize(
    ("least", "rule"),
    [(0, "a non-negative integer."), (1, "a positive integer."), (4, "an integer of at least 4.")],
)
def test_counts(least, rule):
    for value in (least, least + 1, np.int64(least), np.uint8(least)):
        assert arguments.check_count("size", value, least) is None
        count = arguments.checked_count("size", value, least)
        assert count == value and type(count) is int
    for value in (least - 1, np.int64(least - 1), least + 0.5, float(least), np.float32(least)):
        for function in (arguments.check_count, arguments.checked_count):
            assert refused(function, value, least) == f"`size` must be {rule}"


@pytest.mark.parametrize("value", NOT_FINITE, ids=lambda value: str(value)[:8])
def test_what_is_not_finite(value):
    assert refused(arguments.checked_number, value) == "`size` must be a finite number."
    assert refused(arguments.checked_positive, value) == "`size` must be a positive finite number."


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2.0), np.int16(2), Fraction(2)])
def test_numbers_become_floats(value):
    for number in (
        arguments.checked_number("size", value),
        arguments.checked_number("size", value, 2.0, inclusive=True),
        arguments.checked_positive("size", value),
    ):
        assert number == 2.0 and type(number) is float


def test_limits():
    assert arguments.checked_number("size", -1e300) == -1e300
    message = refused(arguments.checked_number, 2.0, 2.0)
    assert message == "`size` must be a finite number greater than 2."
    message = refused(arguments.checked_number, -1e-9, 0.0, inclusive=True)
    assert message == "`size` must be a finite number of at least 0."
    for value in (0, 0.0, -1.0):
        assert "positive" in refused(arguments.checked_positive, value)


@pytest.mark.parametrize("choices", [("a", "b"), ["a", "b"], {"a": 1, "b": 2}])
def test_choices(choices):
    value = "".join(["a"])  # equal, but not the same object
    assert arguments.checked_choice("size", value, choices) is value
    for other in ["c", "ab", "", None, 1, True, b"a", np.nan, ("a",), ["a"], {"a"}, {"a": "a"}] + [
        np.array("a"),
        np.array(["a", "b"]),
        np.ones(3),
        tf.constant("a"),
        tf.Variable(1.0),
    ]:
        assert refused(arguments.checked_choice, other, choices) == (
            "`size` must be one of ['a', 'b']."
        )


def test_choices_of_numbers_and_one_choice():
    assert arguments.checked_choice("size", np.float32(0.5), [0.5, 1.5]) == 0.5
    assert refused(arguments.checked_choice, 1, [0.5, 1.5]) == "`size` must be one of [0.5, 1.5]."
    assert refused(arguments.checked_choice, "a", ["none"]) == "`size` must be 'none'."


def test_the_value_is_written_as_python_writes_it():
    with pytest.raises(ValueError, match=re.escape("Received: size='3'")):
        arguments.check_count("size", "3")
