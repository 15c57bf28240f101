"""BibTeX of the papers behind a model."""

from collections.abc import Iterator
from typing import Any

from tfp_fnspace.boundary import arguments


def _entry(kind: str, key: str, **fields: str) -> str:
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


_HERNANDEZ = r"Hern{\'a}ndez-Lobato, Daniel"

#: The library itself.
_LIBRARY = _entry(
    "misc",
    "tfp_fnspace",
    author="{The tfp\\_fnspace authors}",
    title="{tfp\\_fnspace}: {Bayesian} neural networks that reason about functions, for {Keras} 3 "
    "and {TensorFlow Probability}",
)

_STEIN = _entry(
    "inproceedings",
    "shi2018spectral",
    author="Shi, Jiaxin and Sun, Shengyang and Zhu, Jun",
    title="A spectral approach to gradient estimation for implicit distributions",
    booktitle="International Conference on Machine Learning",
    year="2018",
    eprint="1806.02925",
    archiveprefix="arXiv",
)

#: Name of a class of models, adjustments or conformal predictors -> its entry.
_PAPERS = {
    "TAGIModel": _entry(
        "article",
        "goulet2021tractable",
        author="Goulet, James-A. and Nguyen, Luong Ha and Amiri, Saeid",
        title="Tractable approximate {Gaussian} inference for {Bayesian} neural networks",
        journal="Journal of Machine Learning Research",
        volume="22",
        number="251",
        year="2021",
    ),
    "StableProcessModel": _entry(
        "misc",
        "loria2023posterior",
        author=r"Lor{\'\i}a, Jorge and Bhadra, Anindya",
        title="Posterior inference on infinitely wide {Bayesian} neural networks under weights "
        "with unbounded variance",
        year="2023",
        eprint="2305.10664",
        archiveprefix="arXiv",
    ),
    "FBNNModel": _entry(
        "inproceedings",
        "sun2019functional",
        author="Sun, Shengyang and Zhang, Guodong and Shi, Jiaxin and Grosse, Roger",
        title="Functional variational {Bayesian} neural networks",
        booktitle="International Conference on Learning Representations",
        year="2019",
        eprint="1903.05779",
        archiveprefix="arXiv",
    ),
    "VariationalModel": _entry(
        "inproceedings",
        "blundell2015weight",
        author="Blundell, Charles and Cornebise, Julien and Kavukcuoglu, Koray and Wierstra, Daan",
        title="Weight uncertainty in neural networks",
        booktitle="International Conference on Machine Learning",
        year="2015",
        eprint="1505.05424",
        archiveprefix="arXiv",
    ),
    "SIPModel": _entry(
        "inproceedings",
        "rodriguezsantana2022function",
        author=rf"Rodr{{\'\i}}guez Santana, Sim{{\'o}}n and Zaldivar, Bryan and {_HERNANDEZ}",
        title="Function-space inference with sparse implicit processes",
        booktitle="International Conference on Machine Learning",
        year="2022",
        eprint="2110.07618",
        archiveprefix="arXiv",
    ),
    "VIPModel": _entry(
        "inproceedings",
        "ma2019variational",
        author=r"Ma, Chao and Li, Yingzhen and Hern{\'a}ndez-Lobato, Jos{\'e} Miguel",
        title="Variational implicit processes",
        booktitle="International Conference on Machine Learning",
        year="2019",
        eprint="1806.02390",
        archiveprefix="arXiv",
    ),
    "AVBModel": _entry(
        "inproceedings",
        "mescheder2017adversarial",
        author="Mescheder, Lars and Nowozin, Sebastian and Geiger, Andreas",
        title="Adversarial variational {Bayes}: unifying variational autoencoders and generative "
        "adversarial networks",
        booktitle="International Conference on Machine Learning",
        year="2017",
        eprint="1701.04722",
        archiveprefix="arXiv",
    ),
    "AADMModel": _entry(
        "misc",
        "rodriguezsantana2019adversarial",
        author=rf"Rodr{{\'\i}}guez Santana, Sim{{\'o}}n and {_HERNANDEZ}",
        title=r"Adversarial $\alpha$-divergence minimization for {Bayesian} approximate inference",
        year="2019",
        eprint="1909.06945",
        archiveprefix="arXiv",
    ),
    "DIWPModel": _entry(
        "inproceedings",
        "aitchison2021deep",
        author="Aitchison, Laurence and Yang, Adam X. and Ober, Sebastian W.",
        title="Deep kernel processes",
        booktitle="International Conference on Machine Learning",
        year="2021",
        eprint="2010.01590",
        archiveprefix="arXiv",
    ),
    "WarpedModel": _entry(
        "inproceedings",
        "snelson2004warped",
        author="Snelson, Edward and Rasmussen, Carl Edward and Ghahramani, Zoubin",
        title="Warped {Gaussian} processes",
        booktitle="Advances in Neural Information Processing Systems",
        volume="16",
        year="2004",
    ),
    "StackedModel": _entry(
        "article",
        "yao2018using",
        author="Yao, Yuling and Vehtari, Aki and Simpson, Daniel and Gelman, Andrew",
        title="Using stacking to average {Bayesian} predictive distributions",
        journal="Bayesian Analysis",
        volume="13",
        number="3",
        year="2018",
        doi="10.1214/17-BA1091",
    ),
    "Tempering": _entry(
        "inproceedings",
        "guo2017calibration",
        author="Guo, Chuan and Pleiss, Geoff and Sun, Yu and Weinberger, Kilian Q.",
        title="On calibration of modern neural networks",
        booktitle="International Conference on Machine Learning",
        year="2017",
        eprint="1706.04599",
        archiveprefix="arXiv",
    ),
    "Recalibration": _entry(
        "inproceedings",
        "kuleshov2018accurate",
        author="Kuleshov, Volodymyr and Fenner, Nathan and Ermon, Stefano",
        title="Accurate uncertainties for deep learning using calibrated regression",
        booktitle="International Conference on Machine Learning",
        year="2018",
        eprint="1807.00263",
        archiveprefix="arXiv",
    ),
    "SplitConformal": _entry(
        "article",
        "lei2018distribution",
        author="Lei, Jing and G'Sell, Max and Rinaldo, Alessandro and Tibshirani, Ryan J. and "
        "Wasserman, Larry",
        title="Distribution-free predictive inference for regression",
        journal="Journal of the American Statistical Association",
        volume="113",
        number="523",
        year="2018",
        doi="10.1080/01621459.2017.1307116",
    ),
    "CVPlus": _entry(
        "article",
        "barber2021predictive",
        author=r"Barber, Rina Foygel and Cand{\`e}s, Emmanuel J. and Ramdas, Aaditya and "
        "Tibshirani, Ryan J.",
        title="Predictive inference with the jackknife+",
        journal="The Annals of Statistics",
        volume="49",
        number="1",
        year="2021",
        doi="10.1214/20-AOS1965",
    ),
    "AdaptiveSets": _entry(
        "inproceedings",
        "romano2020classification",
        author=r"Romano, Yaniv and Sesia, Matteo and Cand{\`e}s, Emmanuel J.",
        title="Classification with valid and adaptive coverage",
        booktitle="Advances in Neural Information Processing Systems",
        year="2020",
        eprint="2006.02544",
        archiveprefix="arXiv",
    ),
    "Stein": _STEIN,
    "Regularized": _entry(
        "inproceedings",
        "cinquin2025well",
        author="Cinquin, Tristan and Bamler, Robert",
        title="Well-defined function-space variational inference in {Bayesian} neural networks "
        "via regularized {KL}-divergence",
        booktitle="Uncertainty in Artificial Intelligence",
        year="2025",
        eprint="2406.04317",
        archiveprefix="arXiv",
    ),
    "Linearized": _entry(
        "inproceedings",
        "rudner2022tractable",
        author="Rudner, Tim G. J. and Chen, Zonghao and Teh, Yee Whye and Gal, Yarin",
        title="Tractable function-space variational inference in {Bayesian} neural networks",
        booktitle="Advances in Neural Information Processing Systems",
        year="2022",
        eprint="2312.17199",
        archiveprefix="arXiv",
    ),
}

#: Attributes that hold other parts with papers of their own.
_PARTS = ("model_", "model", "member", "members", "estimators", "adjustment", "divergence")


def citation(model: Any) -> str:
    """Returns the BibTeX entries of the papers behind a model.

    These are the paper of its method, those of what it is made of, such as a mixture, a warp or a
    calibration, and an entry of this library. A method of your own has the paper of the class of
    this library that it derives from, if there is one.

    Args:
        model: Model of this library, estimator of `tfp_fnspace.sklearn` that is fitted, or
            conformal predictor of `tfp_fnspace.calibration`.

    Returns:
        String, entries with a blank line between them. `print(fns.citation(model))` shows it.

    Raises:
        TypeError: If it is a class, or nothing that has a paper here.
    """
    entries = [] if isinstance(model, type) else list(dict.fromkeys(_entries_of(model)))
    if not entries and (isinstance(model, type) or not hasattr(model, "likelihood")):
        raise TypeError(
            "`model` must be a model or a fitted estimator of this library"
            f"{arguments.what_it_is(model)}. Received: model of type {type(model).__name__}"
        )
    return "\n\n".join([*entries, _LIBRARY])


def _entries_of(thing: Any) -> Iterator[str]:
    names = [cls.__name__ for cls in type(thing).__mro__ if cls.__name__ in _PAPERS]
    yield from (_PAPERS[name] for name in names[:1])
    for part in _PARTS:
        inner = getattr(thing, part, None)
        for each in inner if isinstance(inner, list | tuple) else [inner]:
            if each is not None and not isinstance(each, str):
                yield from _entries_of(each)
