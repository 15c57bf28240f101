"""Values of an option that have options themselves, such as the chains of a sampler."""

import dataclasses


class Options:
    """Base of frozen dataclasses that are saved with the model whose argument they are.

    A subclass is registered with Keras, and checks its fields in `__post_init__`.
    """

    def get_config(self):
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config):
        return cls(**config)
