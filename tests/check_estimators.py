"""scikit-learn's checks of real estimators, which take minutes each: `make estimators`.

`python tests/check_estimators.py [NAME ...]` prints the checks that do not pass, and fails if one
of them is not listed here. The base classes pass all of them in tests/sklearn/test_estimators.py.
"""

import argparse
import time
import unittest
import warnings

from sklearn.utils.estimator_checks import estimator_checks_generator

from tfp_fnspace import sklearn as estimators

#: Checks that a recipe can fail although the base classes pass: sizes, repeatability, files.
OF_THE_RECIPE = [
    "check_fit2d_1feature",
    "check_fit_idempotent",
    "check_methods_subset_invariance",
    "check_estimators_pickle",
]

_NO_WEIGHTS = "the method gives no meaning to weights, and refuses them"

#: The checks that fail for an estimator that refuses weights, and why.
WITHOUT_WEIGHTS = {
    "check_sample_weights_pandas_series": _NO_WEIGHTS,
    "check_sample_weights_not_an_array": _NO_WEIGHTS,
    "check_sample_weights_list": _NO_WEIGHTS,
    "check_sample_weights_shape": _NO_WEIGHTS,
    "check_sample_weights_not_overwritten": _NO_WEIGHTS,
    "check_sample_weight_equivalence_on_dense_data": _NO_WEIGHTS,
}

#: The check that fails for an estimator that takes weights, and why.
WITH_WEIGHTS = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a recipe holds out all copies of a row that has a weight, but only some of several rows"
    ),
}

#: Name of an estimator -> check -> why it does not pass.
EXCEPTIONS = {
    **dict.fromkeys(estimators.__all__, WITH_WEIGHTS),
    "StableProcessRegressor": WITHOUT_WEIGHTS,
}


def failures(estimator, only=None):
    """Returns the unlisted checks that fail, all or only some, as name -> error."""
    listed, failed = EXCEPTIONS.get(type(estimator).__name__, {}), {}
    for fresh, check in estimator_checks_generator(estimator):
        name = getattr(check, "func", check).__name__
        if name in listed or (only is not None and name not in only):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(fresh)
        except unittest.SkipTest:
            continue
        except Exception as error:  # a check may fail with any
            failed[name] = repr(error)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=estimators.__all__)
    failed = {}
    for name in parser.parse_args().names:
        begin = time.process_time()
        failed[name] = failures(getattr(estimators, name)(time_limit=0.01))
        seconds = time.process_time() - begin
        print(f"{name}: {len(failed[name])} failures, {seconds:.0f} CPU seconds", flush=True)
        for check, error in failed[name].items():
            print(f"  {check}: {error[:500]}", flush=True)
    return int(any(failed.values()))


if __name__ == "__main__":
    raise SystemExit(main())
