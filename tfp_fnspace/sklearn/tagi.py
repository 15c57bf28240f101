"""What the estimators of TAGI have beyond others: missing numbers are uncertain, rows go on."""

from sklearn.utils import check_consistent_length


class WithTAGI:
    """Part of an estimator with a TAGI model."""

    _takes_variances = True

    def _model_of(self, inputs):
        """The model, or its twin if variances come where training rows had no missing number."""
        is_new = isinstance(inputs, list) and not self.encoder_.has_variances_
        return self.model_.with_variances() if is_new else self.model_

    def _learn(self, X, targets):
        """One pass through the rows; the targets are checked."""
        inputs = self._inputs(X)
        check_consistent_length(X, targets)
        batch_size = min(self.settings_["batch_size"], len(targets))
        self._model_of(inputs).fit(inputs, targets, epochs=1, batch_size=batch_size, verbose=0)
        return self
