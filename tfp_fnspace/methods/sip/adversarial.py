"""Alternating training of a model and of the discriminator that estimates its divergence."""

import keras
import tensorflow as tf

from tfp_fnspace.callbacks import JitterReport
from tfp_fnspace.math import replicas
from tfp_fnspace.math.random import fold_in, split
from tfp_fnspace.model.gradient import GradientTraining, checked_optimizer
from tfp_fnspace.model.penalties import penalty, refuse_added_losses

#: A discriminator that classifies more than this share of an epoch correctly can tell posterior
#: from prior, as it should after some epochs. If it also finds that they are this many nats apart
#: per value that it sees, the posterior is not a plausible update of this prior.
_KNOWS_ALL, _FAR_APART = 0.99, 10.0


class AdversarialReport(JitterReport):
    """Warns, once per run, of a posterior far from the prior, a dead discriminator or added jitter.

    Whether it is dead is checked after 1, 2, 4, 8, ... epochs of its life. A dead discriminator is
    initialised again.
    """

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        num_epochs = int(self.model.epochs_seen.numpy())
        is_due = num_epochs & (num_epochs - 1) == 0
        if is_due and self.is_dead() and self.model.log_ratio.restart():
            self.say(
                "restart",
                f"After epoch {epoch + 1} the discriminator gives the same output for all draws of "
                "posterior and prior: it is initialised again. Possible reasons are units that are "
                "0 everywhere, as with ReLU, or a learning rate of `discriminator_optimizer` that "
                "is too large.",
            )
        accuracy = (logs or {}).get("discriminator_accuracy", 0.0)
        num_values = self.model.log_ratio.discriminator.input_shape[-1]
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

    def on_train_end(self, logs=None):
        super().on_train_end(logs)
        if self.is_dead():
            self.say(
                "dead",
                "At the end of the run the discriminator gives the same output for all draws of "
                "posterior and prior: the divergence has no gradient.",
            )

    def is_dead(self):
        """Returns whether the discriminator gives the same output for all draws."""
        seed = fold_in(tf.convert_to_tensor(self.model.seed_state), self.model.steps_seen.value)
        return bool(self.model.log_ratio.spread(*self.model.divergence_draws(seed)) == 0.0)


class AdversarialTraining(GradientTraining):
    """`GradientTraining` of a model with a `log_ratio`, a `LogRatio` with its own optimizer.

    A step draws from q and p once. The present discriminator estimates the divergence for the step
    of the model, and then learns from the same draws. It has not seen them when it is evaluated, so
    sharing them causes no bias, and its loss needs no additional forward pass. If there are several
    `discriminator_steps`, those after the first use separate draws.

    A model implements `objectives(inputs, targets, num_rows, seed)`, which returns the loss, the
    `Divergences` and the parts for `History`, and `divergence_draws(seed)`, which returns draws
    `[S, K]` of q and p.
    """

    discriminator_steps = 1
    jittered_matrix = "A covariance at the inducing points"

    def default_discriminator_optimizer(self):
        """Returns the optimizer of `compile(discriminator_optimizer=None)`."""
        return keras.optimizers.Adam(1e-3)

    def compile(self, optimizer=None, discriminator_optimizer=None, **kwargs):
        """Configures both optimizers, the metrics and compilation.

        Args:
            optimizer: Optimizer of the model, as in Keras; `None` is the method's own.
            discriminator_optimizer: Optimizer of the discriminator, as above.
            **kwargs: As in `GradientTraining.compile`.
        """
        self.discriminator_optimizer = checked_optimizer(
            "discriminator_optimizer", discriminator_optimizer
        )
        super().compile(optimizer=optimizer, **kwargs)

    def get_compile_config(self):
        config = super().get_compile_config()
        if config is not None:
            optimizer = self.discriminator_optimizer
            config["discriminator_optimizer"] = keras.saving.serialize_keras_object(optimizer)
        return config

    def compile_from_config(self, config):
        super().compile_from_config(config)
        if self.discriminator_optimizer is not None and self.built:
            self.discriminator_optimizer.build(self.discriminator_variables)

    @property
    def discriminator_variables(self):
        """The variables that the discriminator learns."""
        return self.log_ratio.trainable_variables

    @property
    def optimized_variables(self):
        others = {id(variable) for variable in self.discriminator_variables}
        return [v for v in self.trainable_variables if id(v) not in others]

    def _prepare_steps(self, num_rows, total_steps):
        with self.distribute_strategy.scope():
            if self.discriminator_optimizer is None:
                optimizer = self.default_discriminator_optimizer()
                self.discriminator_optimizer = self._loss_scaled(optimizer)
            if not self.discriminator_optimizer.built:
                self.discriminator_optimizer.build(self.discriminator_variables)
        super()._prepare_steps(num_rows, total_steps)

    def _epoch_callbacks(self, callbacks, initial_epoch):
        finite, counter, *given = super()._epoch_callbacks(callbacks, initial_epoch)
        return [finite, counter, AdversarialReport(), *given]  # before callbacks that save

    def jittered_when_predicting(self):
        """Returns how many covariances of predictions need more on their diagonal than `jitter`."""
        return 0

    def objectives(self, inputs, targets, num_rows, seed):
        """Computes the loss, the divergences and the parts for `History`, see the class."""
        raise NotImplementedError

    def divergence_draws(self, seed):
        """Draws from q and p, see the class."""
        raise NotImplementedError

    def objective(self, inputs, targets, num_rows, seed):
        """Computes the loss of the model and the entries of `History`, see `GradientTraining`."""
        loss, divergences, parts = self.objectives(inputs, targets, num_rows, seed)
        return loss, {**parts, **_of_discriminator(divergences)}

    def update(self, inputs, targets):
        seed = fold_in(tf.convert_to_tensor(self.seed_state), self.steps_seen.value)
        self._seed_layers(seed)
        num_rows = tf.cast(self.training_rows.value, self.variable_dtype)
        ours, theirs = self.optimized_variables, self.discriminator_variables
        with tf.GradientTape(persistent=True) as tape:
            loss, divergences, parts = self.objectives(inputs, targets, num_rows, seed)
            refuse_added_losses(self)
            loss += penalty(ours, loss.dtype)
            # The optimizers add the losses of the replicas, each of which is a mean over its rows.
            weight = replicas.weight(loss.dtype)
            scaled = self.optimizer.scale_loss(loss * weight)
            their_loss = divergences.loss + penalty(theirs, loss.dtype)
            their_loss = self.discriminator_optimizer.scale_loss(their_loss * weight)
        gradients = tape.gradient(scaled, ours), tape.gradient(their_loss, theirs)
        del tape
        # Keras runs a step without data at the end of a generator, which must not count.
        with tf.control_dependencies([loss]):
            self.optimizer.apply(gradients[0], ours)
            self.discriminator_optimizer.apply(gradients[1], theirs)
            for i in range(1, self.discriminator_steps):
                self._discriminator_step(fold_in(seed, -i))
            self.steps_seen.assign_add(1)
        return {"loss": loss, **parts, **_of_discriminator(divergences)}

    def _discriminator_step(self, seed):
        """Runs a step of the discriminator with separate draws."""
        seeds = split(seed, 2)
        q, p = map(tf.stop_gradient, self.divergence_draws(seeds[0]))
        with tf.GradientTape() as tape:
            loss = self.log_ratio(q, p, seeds[1]).loss
            loss += penalty(self.discriminator_variables, loss.dtype)
            weighted = loss * replicas.weight(loss.dtype)
            scaled = self.discriminator_optimizer.scale_loss(weighted)
        variables = self.discriminator_variables
        self.discriminator_optimizer.apply(tape.gradient(scaled, variables), variables)


def _of_discriminator(divergences):
    """Returns the entries of `History` about the discriminator."""
    return {
        "discriminator_loss": divergences.loss,
        "discriminator_accuracy": divergences.accuracy,
    }
