"""One classifier for each method that can learn classes."""

from typing import Self

import numpy as np

from tfp_fnspace.sklearn.base import TableClassifier
from tfp_fnspace.sklearn.tagi import WithTAGI
from tfp_fnspace.typing import ArrayLike


class TAGIClassifier(WithTAGI, TableClassifier):
    """Classification by TAGI, a network whose weights are learnt in closed form and online.

    A missing number is treated as a Gaussian with the moments of its column.

    Args:
        time_limit: Seconds that `fit` may take, 15 by default; a step that has begun is finished.
        class_weight: Dict from labels to positive numbers, by which the weights of their rows are
            multiplied, or "balanced": all classes then have the same sum of weights. The default
            is 1 for all.
        random_state: As in scikit-learn: an integer makes `fit` repeatable, unless its time limit
            ends it: then it takes as many steps as the machine can do.
        verbose: 1 for a progress bar.

    Attributes:
        model_: The fitted Keras model, `TAGIModel`.
        settings_: The settings that the recipe has chosen, a dict.
        classes_: The labels `[K]`.
        encoder_: The encoder that converts the table to numbers; `get_feature_names_out` names
            them.
        n_features_in_: Number of columns of the table.
        feature_names_in_: Their names, if they are words.
    """

    method = "tagi"

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Learns from further rows, each once; the posterior so far is the prior for them.

        Args:
            X: As for `fit`.
            y: As for `fit`.
            classes: All labels, if the first rows do not have them all. The first call is a `fit`.

        Returns:
            The classifier.

        Raises:
            ValueError: If y has a label that is none of the classes, or `class_weight` is
                "balanced", for which the number of rows of each class must be known at the start.
        """
        if self.class_weight == "balanced":
            raise ValueError(
                "`class_weight` must be a dict or None for `partial_fit`, which does not know the "
                'rows to come. Received: class_weight="balanced"'
            )
        y, is_first = self._labels(y), not hasattr(self, "model_")
        if is_first:
            self.classes_ = np.unique(y if classes is None else classes)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(
                "`y` must have labels of `classes`, which must name all labels. "
                f"Received: y with {unknown.tolist()}, classes={self.classes_.tolist()}"
            )
        labels = np.searchsorted(self.classes_, y)
        weights = self._weights_of(y)
        if is_first:
            return self._fit_labels(X, labels, weights)
        return self._learn(X, labels, weights)


class FBNNClassifier(TableClassifier):
    """Classification by a functional variational network, whose prior is a Gaussian process.

    Args:
        time_limit: As for `TAGIClassifier`.
        class_weight: As for `TAGIClassifier`.
        random_state: As for `TAGIClassifier`.
        verbose: As for `TAGIClassifier`.
    """

    method = "fbnn"


class DIWPClassifier(TableClassifier):
    """Classification by a deep inverse Wishart process, a deep model of the kernel.

    Args:
        time_limit: As for `TAGIClassifier`.
        class_weight: As for `TAGIClassifier`.
        random_state: As for `TAGIClassifier`.
        verbose: As for `TAGIClassifier`.
    """

    method = "diwp"
