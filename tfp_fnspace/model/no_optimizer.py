"""What stands in the place of an optimizer."""

from typing import Any

import keras


class NoOptimizer:
    """`model.optimizer` of a model that minimises nothing, such as TAGI or the stable process.

    Keras has `None` there. Loggers of MLflow, W&B and others read a configuration, a learning rate
    and a number of steps from every optimizer, and stop at `None`. It is not an optimizer of Keras
    and has no weights, so that nothing of it is saved or restored.

    Attributes:
        name: `"none"`.
        learning_rate: `None`.
        iterations: Number of finished training steps, a variable.
        variables: Empty.
        built: `True`.
    """

    name = "none"
    learning_rate = None
    variables = ()
    built = True

    def __init__(self, steps: keras.Variable):
        self.iterations = steps

    def get_config(self) -> dict[str, Any]:
        """Returns the name alone."""
        return {"name": self.name}
