"""Training of `StableProcessModel`: an epoch is a block of iterations of all chains."""

import json

import numpy as np

from tfp_fnspace import arguments, columns, interrupts, streams
from tfp_fnspace.callbacks import refuse_learning_rates
from tfp_fnspace.math.random import as_seed, fold_in
from tfp_fnspace.methods.stable_process import chains, diagnostics, options
from tfp_fnspace.methods.stable_process.store import ChainStore, sizes_of
from tfp_fnspace.model.sizes import LearnsSizes
from tfp_fnspace.model.turns import one_thread_at_a_time

_ALL_ROWS_AT_ONCE = "MCMC conditions on all rows at once: "


class StableTraining(LearnsSizes):
    """`adapt` and `fit`; a plain class, like the contract's mixin."""

    # A partition's cells can be thinner than float32 resolves.
    input_dtype = "float64"

    def _row_shape(self, array):
        return (self.num_inputs or (array.shape[-1] if array.ndim > 1 else 1),)

    def _setup_for(self, input_shape, num_columns, num_rows):
        self._setup_sizes([self._first_tensor(input_shape)], num_columns)

    def _check_ready(self):
        if self.store is None or not self.store.counter("stored"):
            raise ValueError("The model is not fitted: call `fit`. Received: a model without draws")

    @one_thread_at_a_time
    def adapt(self, x, y=None):
        """Sets the standardisation from arrays; `fit` does so by itself the first time."""
        self._refuse_stream(x)
        self._learn_sizes(x, y)
        super().adapt(x, y)

    def _refuse_stream(self, x):
        if streams.is_stream(x):
            raise ValueError(
                f"{_ALL_ROWS_AT_ONCE}`x` must be an array, not a dataset. "
                f"Received: x of type {type(x).__name__}"
            )

    def _check_callbacks(self, callbacks):
        refuse_learning_rates(callbacks, "The stable process has no learning rate to schedule.")

    @one_thread_at_a_time
    def fit(
        self,
        x=None,
        y=None,
        batch_size=None,
        epochs=30,
        verbose="auto",
        callbacks=None,
        validation_split=0.0,
        validation_data=None,
        shuffle=None,
        class_weight=None,
        sample_weight=None,
        initial_epoch=0,
        steps_per_epoch=None,
        validation_freq=1,
        x_predict=None,
        **unknown,
    ):
        """Runs the chains; arguments and result are as in `keras.Model.fit` if they apply.

        On the data of the last `fit`, the chains go on where they are, without a new burn-in. On
        other data they start warm: noise, alpha, nu, steps and the scales of atoms with the same
        pattern are kept, and a burn-in begins.

        Args:
            x: Array `[N, I]`, or `[N]` for one input.
            y: Targets `[N, D]`, or `[N]`.
            batch_size: Refused, as are `shuffle` and `steps_per_epoch`: an epoch is a block of
                iterations on all rows.
            epochs: Number of epochs, burn-in included.
            verbose: As in Keras.
            callbacks: List of callbacks; `BackupAndRestore` resumes to the same draws.
            validation_split: Fraction of the last rows to validate on.
            validation_data: `(x, y)`. The scores are those of the draws so far; the cost of CRPS
                grows with the square of their number.
            shuffle: Refused.
            class_weight: Refused.
            sample_weight: Refused.
            initial_epoch: Number of the first epoch.
            steps_per_epoch: Refused.
            validation_freq: Epochs between validations.
            x_predict: Array `[M, I]` of points at which the distribution of the process must be
                exact, jointly with `x` (see `partition`). `None` leaves the points of a `fit` on
                the same data as they are.
            **unknown: Refused.

        Returns:
            `keras.callbacks.History`. Each epoch has the mean `log_likelihood` of a row given the
            scales and `loss`, its negative, in the user's units. It also has means over its draws:
            the `noise_scale`, also in the user's units, and the parameters `alpha` and `nu` of the
            process, which models standardised targets. `acceptance` is the share of the groups of
            atoms that took a new scale.

        Raises:
            TypeError: If data are not numbers, a callback is not one, or an argument is unknown.
            ValueError: If the data are bad, or an argument cannot be used.
        """
        arguments.refuse_unknown("fit", unknown)
        self._refuse_stream(x)
        self._refuse_weights(class_weight=class_weight, sample_weight=sample_weight)
        refused = {
            "batch_size": batch_size,
            "shuffle": shuffle,
            "steps_per_epoch": steps_per_epoch,
        }
        for name, value in refused.items():
            if value is not None:
                raise ValueError(
                    f"{_ALL_ROWS_AT_ONCE}`{name}` must not be given. Received: {name}={value!r}"
                )
        self._learn_sizes(x, y)
        self._x_predict = self._checked_x_predict(x_predict, x)
        history = super().fit(
            x,
            y,
            epochs=epochs,
            verbose=verbose,
            callbacks=callbacks,
            validation_split=validation_split,
            validation_data=validation_data,
            initial_epoch=initial_epoch,
            validation_freq=validation_freq,
        )
        self._warn()
        return history

    def _checked_x_predict(self, x_predict, x):
        if x_predict is None:
            return None
        if not isinstance(self.partition, str):
            raise ValueError(
                "`x_predict` goes with a partition that the model makes itself. "
                f"Received: x_predict with partition={self.partition!r}"
            )
        if not self._has_units:  # only the columns of x are known
            columns.check_column_names(x_predict, columns.names_to_keep(x), "x_predict")
        return self._check_inputs(x_predict, "x_predict", first=not self._has_units)[0]

    def _warn(self):
        epochs = self.store.counter("epochs")
        if epochs <= self.burn_in:
            diagnostics.warn_of_burn_in(epochs, self.burn_in)
        else:
            diagnostics.warn_of_bad_chains(self.diagnostics())

    def train_on_batch(self, *args, **kwargs):
        """Raises an error: there are no batches."""
        raise ValueError(
            f"{_ALL_ROWS_AT_ONCE}call `fit` with all of them. Received: a call of train_on_batch"
        )

    def _steps_in_epoch(self, num_rows, batch_size):
        return self.sweeps_per_epoch

    def _fit_arrays(self, inputs, targets, batch_size, shuffle, fit_options):
        self._prepare(inputs[0], targets)
        self._forget_problem()  # a checkpoint may be restored before the first epoch
        return self._fit_epochs(self._train_epoch, inputs, targets, fit_options)

    def _scaled(self, inputs, targets):
        """Returns arrays in model units, float64."""
        x = self.input_scalers[0](inputs).numpy()
        scaler = self.target_scaler
        return x, (targets - scaler.mean.numpy()) / scaler.stddev.numpy()

    def _prepare(self, inputs, targets):
        """Makes a store for these data, unless there is one."""
        x, y = self._scaled(inputs, targets)
        x_predict = self._x_predict
        if x_predict is not None:
            x_predict = self.input_scalers[0](x_predict).numpy()
        if self.store is not None and self.store.has_data(x, y, x_predict):
            return
        x_predict = x[:0] if x_predict is None else x_predict
        partition = chains.make_partition(self, x, x_predict, self.fold_seed())
        is_given = not isinstance(self.partition, str)
        if self.num_atoms is not None and (is_given or partition.kind == "exact"):
            diagnostics.warn_of_num_atoms(self.num_atoms, partition)
        problem = chains.make_problem(partition, x, y, self.num_chains)
        seed = self._seed(0)
        if self.store is None:
            start = chains.starting_values(self, y.shape[1])
            state = chains.initial_state(self, seed, problem, *start)
        else:
            state = chains.warm_state(self, seed, self.store, problem, partition, x)
        arrays = (partition, x, y, x_predict, state)
        config_bytes = len(json.dumps(options.partition_config(self.partition)))
        sizes = sizes_of(*arrays, self.num_chains, self.max_draws, config_bytes)
        with interrupts.held():
            self._create_store(sizes)
            self.store.hyperplanes.assign(partition.hyperplanes)
            self.store.probabilities.assign(partition.probabilities)
            for name, value in {"x": x, "y": y, "x_predict": x_predict}.items():
                getattr(self.store, name).assign(value)
            self.store.set_state(state)
            self.store.clear()

    def _create_store(self, sizes):
        if self.store is not None:
            self._tracker.untrack(self.store)
        self.store = ChainStore(sizes, name="chains")
        self._reset_functions()

    def _seed(self, purpose):
        """Returns a seed for a purpose after this many iterations."""
        seed = fold_in(as_seed(self.seed_state.numpy()), purpose)
        return fold_in(seed, self.steps_seen.numpy())

    def _forget_problem(self):
        # Keras must not track these constants, since they are not to be saved.
        vars(self)["_problem"] = None

    def _train_epoch(self):
        """Runs one block of iterations of all chains and returns its logs."""
        store = self.store
        if self._problem is None:
            vars(self)["_problem"] = chains.make_problem(
                store.partition, store.x.numpy(), store.y.numpy(), self.num_chains
            )
        run = chains.compiled_run(
            self.sampler_name,
            options.settings_of(self),
            self.sweeps_per_epoch // self.thin,
            self.thin,
        )
        state, new, info = run(self._seed(1), store.state, self._problem)
        with interrupts.held():
            if store.counter("epochs") <= self.burn_in:
                store.clear()
            store.set_state(state)
            store.add(new)
            store.count_epoch()
            self.steps_seen.assign_add(self.sweeps_per_epoch)
        log_likelihood = np.sum(info.log_likelihood) / self.num_chains / store.sizes["rows"]
        noise = np.reshape(new.noise_scale, [-1, self.num_outputs, self.num_chains])
        logs = {
            "loss": -log_likelihood,
            "log_likelihood": log_likelihood,
            "noise_scale": np.mean(noise * self.target_unit.numpy()[:, np.newaxis]),
            "alpha": np.mean(new.alpha),
            "nu": np.mean(new.nu),
            "acceptance": np.mean(info.accept_scales),
        }
        return {name: float(value) for name, value in self.logs_in_user_units(logs).items()}

    @property
    def sampler_name(self):
        """The sampler that `sampler` stands for."""
        return "grouped" if self.sampler == "auto" else self.sampler
