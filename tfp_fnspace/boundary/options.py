"""Values of an option that have options themselves, such as the chains of a sampler."""

import dataclasses
from typing import Any, Self

import keras
import numpy as np

from tfp_fnspace.typing import Config


@dataclasses.dataclass(frozen=True, eq=False)
class Options:
    """Base of frozen dataclasses that are saved with the model whose argument they are.

    A subclass is registered with Keras, and checks its fields in `__post_init__`.
    """

    @classmethod
    def names(cls) -> list[str]:
        """Returns the names of the fields."""
        return [field.name for field in dataclasses.fields(cls)]

    @classmethod
    def checked(cls, name: str, value: Any) -> Self:
        """Returns an object of this class, `cls()` for `None`.

        Args:
            name: Name of the argument, for the message.
            value: What was given.

        Raises:
            TypeError: If it is something else.
        """
        if value is None:
            return cls()
        if not isinstance(value, cls):
            module = "tfp_fnspace." + cls.__module__.split(".")[2]  # the short name of its method
            raise TypeError(
                f"`{name}` must be a {module}.{cls.__name__}. Received: {name}={value!r}"
            )
        return value

    def get_config(self) -> Config:
        values = {name: getattr(self, name) for name in self.names()}
        return {k: v.item() if isinstance(v, np.generic) else v for k, v in values.items()}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        load = keras.saving.deserialize_keras_object
        return cls(**{k: load(v) if isinstance(v, dict) else v for k, v in config.items()})
