"""The special features of TAGI's estimators: uncertain inputs, and learning from further rows."""

from typing import TYPE_CHECKING

from sklearn.utils import check_consistent_length

from tfp_fnspace.calibration import CalibratedModel
from tfp_fnspace.model import FunctionSpaceModel
from tfp_fnspace.sklearn.base import TableEstimator
from tfp_fnspace.warping import WarpedModel

if TYPE_CHECKING:
    from tfp_fnspace.methods.tagi import TAGIModel


class WithTAGI(TableEstimator):
    """Mixin of estimators with a TAGI model."""

    _takes_variances = True

    def _model_of(self, inputs):
        """Returns the model, or its variant for variances if only new rows have missing numbers."""
        model = self.model_
        if not isinstance(inputs, list) or self.encoder_.has_variances_:
            return model
        return _with_variances(model)

    def _served_model(self):
        """Returns the model that takes variances, if a number may be missing."""
        encoder = self.encoder_
        takes_variances = encoder.uncertain and not all(encoder.is_category_)
        return self._model_of([]) if takes_variances else self.model_

    def _learn(self, X, targets, weights=None):
        """Learns from rows in one pass; targets and weights must have been checked."""
        inputs = self._inputs(X)
        check_consistent_length(X, targets)
        batch_size = min(self.settings_["batch_size"], len(targets))
        model = self._model_of(inputs)
        if isinstance(model, WarpedModel):
            model, targets = model.member, model.warp(targets)
        model.fit(
            inputs, targets, epochs=1, batch_size=batch_size, sample_weight=weights, verbose=0
        )
        return self


def _with_variances(model: "TAGIModel | WarpedModel | CalibratedModel") -> FunctionSpaceModel:
    if isinstance(model, WarpedModel | CalibratedModel):
        return model.with_member(_with_variances(model.member))
    return model.with_variances()
