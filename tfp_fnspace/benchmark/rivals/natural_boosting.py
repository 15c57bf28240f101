"""NGBoost with early stopping."""

import copy

from ngboost import NGBRegressor
from ngboost.learners import default_tree_learner

from tfp_fnspace.benchmark.rivals.base import Rival, held_out


class NGBoost(Rival):
    """A normal distribution by natural gradient boosting of trees of depth 3.

    It has up to 2,000 trees at the package's learning rate of 0.01, and stops when the log density
    of a held-out tenth has not risen for 50 trees. The best number of trees predicts.
    """

    def _fit(self, x, y):
        train, valid = held_out(len(x), self.random_state)
        # Trees break ties at random, with a seed that the model does not give them.
        tree = copy.deepcopy(default_tree_learner).set_params(random_state=self.random_state)
        options = {"Base": tree, "random_state": self.random_state, "verbose": False}
        model = NGBRegressor(n_estimators=2000, **options)
        model.fit(x[train], y[train], x[valid], y[valid], early_stopping_rounds=50)
        self._model, self._num_trees = model, model.best_val_loss_itr + 1

    def _predict(self, x):
        found = self._model.pred_dist(x, max_iter=self._num_trees)
        return found.params["loc"], found.params["scale"]
