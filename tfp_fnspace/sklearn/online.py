"""Learning from further rows, for a model whose posterior goes on."""

from sklearn.utils import check_consistent_length


class OnlineUpdates:
    """Part of an estimator with a TAGI model."""

    def _learn(self, X, targets):
        """One pass through the rows; the targets are checked."""
        inputs = self._inputs(X)
        check_consistent_length(X, targets)
        batch_size = min(self.settings_["batch_size"], len(targets))
        self.model_.fit(inputs, targets, epochs=1, batch_size=batch_size, verbose=0)
        return self
