"""The protocol of a paper: a TOML file of settings and of the paper's numbers.

method = "tagi"              # a name in `registry`
errors = "deviation"         # what follows ±: "deviation" over `runs`, "error", or "none"
[settings]                   # keyword arguments of the method's `fit` but `seed`
[sets.NAME]                  # settings that differ for a data set
[variants.TITLE]             # settings that differ for a variant; at least one variant
[results.TITLE]              # NAME = { rmse = "1.2 ± 0.1", log_likelihood = "-1.5 ± 0.2" }
"""

import inspect
import os
import pathlib
import tomllib
from dataclasses import dataclass
from typing import Any

from tfp_fnspace import registry

#: Folder of the files in a checkout.
FOLDER = pathlib.Path("benchmarks/uci/paper")

#: Entries that a file may have, and their types.
_ENTRIES = {"method": str, "errors": str} | dict.fromkeys(
    ("settings", "sets", "variants", "results"), dict
)


@dataclass(frozen=True)
class Protocol:
    """The contents of a file.

    Attributes:
        method: Name from `registry.METHODS`.
        errors: The kind of number that follows ± in `results`.
        settings: Dict of keyword arguments.
        sets: Dict from names of data sets to settings that differ.
        variants: Dict from titles to settings that differ.
        results: Dict from titles of variants to a dict from names of data sets to the paper's
            results.
    """

    method: str
    errors: str
    settings: dict
    sets: dict
    variants: dict
    results: dict

    def config(self, variant: str, dataset: str, split: int) -> dict[str, Any]:
        """Returns keyword arguments of the method's `fit`; split k has seed k."""
        other = {**self.variants[variant], **self.sets.get(dataset, {})}
        return {**self.settings, **other, "seed": split}

    def datasets(self) -> list[str]:
        """Returns the names of the data sets that have results in the paper."""
        return sorted({name for rows in self.results.values() for name in rows})


def read(path: str | os.PathLike[str]) -> Protocol:
    """Reads a file.

    Args:
        path: The file, or a name for `benchmarks/uci/paper/<name>.toml`.

    Raises:
        ValueError: If the file is not as the module describes, or its settings are not those of the
            method.
    """
    path = pathlib.Path(path)
    if not path.exists() and path.suffix != ".toml":
        path = FOLDER / f"{path}.toml"
    rule = "A protocol must be a TOML file of " + ", ".join(_ENTRIES)
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{rule}. Received: '{path}': {error}") from error
    entries = {name: found.pop(name, kind()) for name, kind in _ENTRIES.items()}
    wrong = [name for name, kind in _ENTRIES.items() if not isinstance(entries[name], kind)]
    if found or wrong or not entries["variants"]:
        raise ValueError(f"{rule}, one variant at least. Received: '{path}', {[*found, *wrong]}")
    protocol = Protocol(**entries)
    _check_results(protocol, path)
    _check_settings(protocol, path)
    return protocol


def _check_results(protocol, path):
    kinds = ("deviation", "error", "none")
    if protocol.errors not in kinds:
        raise ValueError(
            f"What follows ± must be one of {kinds}. Received: '{path}', errors={protocol.errors!r}"
        )
    unknown = sorted(set(protocol.results) - set(protocol.variants))
    if unknown:
        raise ValueError(f"Results must be of variants. Received: '{path}', {unknown}")
    for name, row in ((n, r) for rows in protocol.results.values() for n, r in rows.items()):
        if protocol.errors == "deviation" and "±" in str(row) and "runs" not in row:
            raise ValueError(f"Deviations must have `runs`. Received: '{path}', {name} = {row}")


def _check_settings(protocol, path):
    fit = registry.method(protocol.method).fit
    for variant in protocol.variants:
        for name in ["", *protocol.sets]:
            try:
                inspect.signature(fit).bind(None, None, **protocol.config(variant, name, 0))
            except TypeError as error:
                raise ValueError(
                    f"The settings of a protocol must be those of {fit.__module__}.fit. "
                    f"Received: '{path}', {variant}: {error}"
                ) from error
