"""The environment of `make test-lowest` is made from the ranges of setup.py."""

import importlib.metadata

import lowest_versions
from packaging.requirements import Requirement


def test_each_package_has_the_lowest_version_that_all_its_ranges_allow():
    lines = ["numpy>=1.26,<3", "a>=2; extra == 'dev'", "a>=10.1; extra == 'demo'", "b", "c<4"]
    assert lowest_versions.constraints(lines) == ["a==10.1", "numpy==1.26"]


def test_every_requirement_of_this_package_states_a_lowest_version():
    requirements = importlib.metadata.requires("tfp_fnspace")
    constraints = lowest_versions.constraints(requirements)
    names = {line.split("==")[0] for line in constraints}
    assert names == {Requirement(line).name for line in requirements}
