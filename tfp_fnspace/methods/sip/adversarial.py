"""Alternating training of a model and of the discriminator that estimates its divergence."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras

from tfp_fnspace.callbacks import JitterReport
from tfp_fnspace.methods.sip.log_ratio import Divergences, LogRatio
from tfp_fnspace.typing import Seed, Tensor

if TYPE_CHECKING:
    from tfp_fnspace.methods.sip.model import SIPModel
    from tfp_fnspace.methods.sip.weight_space import AADMModel

#: A discriminator that classifies more than this share of an epoch correctly can tell posterior
#: from prior, as it should after some epochs. If it also finds that they are this many nats apart
#: per value that it sees, the posterior is not a plausible update of this prior.
_KNOWS_ALL, _FAR_APART = 0.99, 10.0


class AdversarialReport(JitterReport):
    """Warns, once per run, of a posterior far from the prior, a dead discriminator or added jitter.

    Whether it is dead is checked after 1, 2, 4, 8, ... epochs of its life. A dead discriminator is
    initialised again.

    Args:
        log_ratio: The estimator of the model's divergence.
        divergence_draws: Function from a seed to draws of q and of p, `[S, K]` each.
        *jitter: As for `JitterReport`.
    """

    def __init__(
        self,
        log_ratio: LogRatio,
        divergence_draws: Callable[[Seed], tuple[Tensor, Tensor]],
        *jitter: Any,
    ):
        super().__init__(*jitter)
        self.log_ratio, self.divergence_draws = log_ratio, divergence_draws

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        num_epochs = int(self.model.counters.epochs.numpy())
        is_due = num_epochs & (num_epochs - 1) == 0
        if is_due and self.is_dead() and self.log_ratio.restart():
            self.say(
                "restart",
                f"After epoch {epoch + 1} the discriminator gives the same output for all draws of "
                "posterior and prior: it is initialised again. Possible reasons are units that are "
                "0 everywhere, as with ReLU, or a learning rate of `discriminator_optimizer` that "
                "is too large.",
            )
        accuracy = (logs or {}).get("discriminator_accuracy", 0.0)
        num_values = self.log_ratio.discriminator.input_shape[-1]
        apart = (logs or {}).get("kl_estimate", 0.0) / num_values
        if accuracy > _KNOWS_ALL and apart > _FAR_APART:
            self.say(
                "accuracy",
                f"The discriminator classifies {accuracy:.1%} of the draws of posterior and prior "
                f"correctly in epoch {epoch + 1}, and finds them {apart:.3g} nats apart per value: "
                "the prior does not expect such data, and `kl_estimate` is then only a lower "
                "bound, which regularises less than the divergence would. Check the scale of the "
                "prior; `adaptive_contrast`, fewer inducing points or more dropout make the task "
                "of the discriminator harder.",
            )

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_end(logs)
        if self.is_dead():
            self.say(
                "dead",
                "At the end of the run the discriminator gives the same output for all draws of "
                "posterior and prior: the divergence has no gradient.",
            )

    def is_dead(self) -> bool:
        """Returns whether the discriminator gives the same output for all draws."""
        seed = self.model.counters.step_seed()
        return bool(self.log_ratio.spread(*self.divergence_draws(seed)) == 0.0)


#: The trained parts of an adversarial model, and the attributes that have their optimizers.
OPTIMIZER_NAMES = {"model": "optimizer", "discriminator": "discriminator_optimizer"}


def trained_parts(model: "SIPModel | AADMModel") -> dict[str, list[keras.Variable]]:
    """Returns the variables of the model and of its discriminator, see `GradientModel`.

    Args:
        model: `GradientModel` with a `log_ratio`, a `LogRatio`.
    """
    theirs = model.log_ratio.trainable_variables
    ids = {id(variable) for variable in theirs}
    ours = [v for v in model.trainable_variables if id(v) not in ids]
    return {"model": ours, "discriminator": theirs}


def objective(
    loss: Tensor, divergences: Divergences, history: dict[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns the result of `GradientModel.objective` for both parts.

    A step draws from q and p once. The present discriminator estimates the divergence for the step
    of the model, and then learns from the same draws. It has not seen them when it is evaluated, so
    sharing them causes no bias, and its loss needs no additional forward pass.

    Args:
        loss: Loss of the model, a scalar.
        divergences: `Divergences` of the draws of this step.
        history: Dict of entries of `History`.
    """
    losses = {"model": loss, "discriminator": divergences.loss}
    of_discriminator = {
        "discriminator_loss": divergences.loss,
        "discriminator_accuracy": divergences.accuracy,
    }
    return losses, {**history, **of_discriminator}
