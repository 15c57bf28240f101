"""The lowest versions that `setup.py` supports, as constraints for pip (`make test-lowest`)."""

import importlib.metadata
from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.version import Version


def constraints(requirements: Iterable[str]) -> list[str]:
    """Returns a line `name==version` for each package whose lowest version is stated.

    Args:
        requirements: Lines such as `"numpy>=1.26,<3"`. A package in several of them gets the
            highest of its lowest versions, since all must hold.
    """
    lowest: dict[str, Version] = {}
    for line in requirements:
        requirement = Requirement(line)
        for specifier in requirement.specifier:
            if specifier.operator == ">=":
                version = Version(specifier.version)
                lowest[requirement.name] = max(version, lowest.get(requirement.name, version))
    return [f"{name}=={version}" for name, version in sorted(lowest.items())]


if __name__ == "__main__":
    print("\n".join(constraints(importlib.metadata.requires("tfp_fnspace") or [])))
