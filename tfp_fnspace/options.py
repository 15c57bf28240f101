"""Values of an option that have options themselves, such as the chains of a sampler."""

import dataclasses

import keras


class Options:
    """Base of frozen dataclasses that are saved with the model whose argument they are.

    A subclass is registered with Keras, and checks its fields in `__post_init__`.
    """

    @classmethod
    def names(cls):
        """Returns the names of the fields."""
        return [field.name for field in dataclasses.fields(cls)]

    def get_config(self):
        return {name: getattr(self, name) for name in self.names()}

    @classmethod
    def from_config(cls, config):
        load = keras.saving.deserialize_keras_object
        return cls(**{k: load(v) if isinstance(v, dict) else v for k, v in config.items()})
