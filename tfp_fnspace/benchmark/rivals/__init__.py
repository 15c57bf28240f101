"""Alternatives that a user would pick, each as a careful user runs it without tuning.

| name | what it is | module |
|---|---|---|
| `climatology` | the training targets, whatever x is | `plain` |
| `linear` | Bayesian ridge regression (scikit-learn) | `plain` |
| `exact_gp` | Gaussian process, at most 2,000 rows (scikit-learn) | `gaussian_processes` |
| `sparse_gp` | Gaussian process of inducing points (GPflow) | `sparse_gaussian_process` |
| `conformal_boosting` | boosting, and residuals of rows left out (scikit-learn) | `boosting` |
| `quantile_boosting` | a boosted model for each quantile (scikit-learn) | `boosting` |
| `ngboost` | natural gradient boosting of a normal distribution | `natural_boosting` |
| `mc_dropout`, `deep_ensemble` | networks of mean and variance (Keras) | `networks` |
| `bayes_by_backprop` | `VariationalModel` with learnt noise | `variational` |

Each has `fit(X, y)` and `predict_distribution(X)`, a distribution with batch `[N]` and event `[1]`
in the user's units. The packages come with `pip install tfp_fnspace[bench]`; a module is imported
when one of its estimators is made.
"""
