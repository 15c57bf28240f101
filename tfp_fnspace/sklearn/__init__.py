"""Estimators for scikit-learn: each combines a method, its recipe and a table encoder.

They are not part of `import tfp_fnspace`; use `from tfp_fnspace.sklearn import TAGIRegressor`.
"""

try:
    from sklearn.utils.validation import validate_data  # noqa: F401 (new in scikit-learn 1.6)
except ImportError as error:
    raise ImportError(
        "`tfp_fnspace.sklearn` needs scikit-learn 1.6 or later: "
        f"`pip install 'tfp_fnspace[sklearn]'`. Received: {error}"
    ) from error

from tfp_fnspace.sklearn.classifiers import DIWPClassifier, FBNNClassifier, TAGIClassifier
from tfp_fnspace.sklearn.regressors import (
    DIWPRegressor,
    FBNNRegressor,
    SIPRegressor,
    StableProcessRegressor,
    TAGIRegressor,
)
from tfp_fnspace.sklearn.stacked import FunctionSpaceClassifier, FunctionSpaceRegressor

__all__ = [
    "DIWPClassifier",
    "DIWPRegressor",
    "FBNNClassifier",
    "FBNNRegressor",
    "FunctionSpaceClassifier",
    "FunctionSpaceRegressor",
    "SIPRegressor",
    "StableProcessRegressor",
    "TAGIClassifier",
    "TAGIRegressor",
]
