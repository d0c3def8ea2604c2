"""One agent, which shares no state with another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from sheafed.agents.checks import (
    check_classes,
    check_finite_latents,
    check_numbers,
    check_parts,
)
from sheafed.agents.collation import Collate
from sheafed.agents.data_forms import as_local_data, as_samples_like
from sheafed.agents.encoding_memory import EncodingMemory
from sheafed.agents.input_checks import check_finite_inputs, naming_inputs, remedy
from sheafed.agents.local_model import LocalModel
from sheafed.agents.objectives import Objective, cross_entropy, mean_squared_error
from sheafed.agents.optimizers import (
    MakeOptimizer,
    MakeScheduler,
    SchedulerPeriod,
    build_optimizer,
    build_scheduler,
    check_period,
    default_optimizer,
    hyperparameters,
)
from sheafed.agents.precision import (
    Precision,
    check_precision,
    check_trainable,
)
from sheafed.agents.read_ahead import BatchStream, batches
from sheafed.agents.rng import RngStream
from sheafed.agents.samples import Batch, DataOrder, DatasetSamples, Samples
from sheafed.agents.task import check_metric, check_targets, is_regression
from sheafed.devices import as_device, device_of
from sheafed.errors import (
    InputError,
    LatentSizeError,
    NonFiniteError,
    OptimizerError,
)
from sheafed.linalg.checks import as_int
from sheafed.metrics.metric import Metric, as_metric
from sheafed.names import check_name
from sheafed.tensor_tree import (
    TensorTree,
    structure,
    tree_length,
)

ENCODING_BATCH_SIZE = 128
"""Samples encoded at once: with 1024 the activations of small images take memory that the system
hands out and zeroes anew each time, and encoding takes twice as long."""

DEFAULT_BATCH_SIZE = 64


class Cohort(Protocol):
    """Agents of one structure whose passes and steps are computed together.

    Each of them sees only what is its own; see `sheafed.vectorized`.
    """

    def loss(self, agent: Agent) -> tuple[Batch, Tensor]:
        """Return an agent's next batch and its objective on it."""

    def encode_pilots(self, agent: Agent, indices: Tensor | None) -> Tensor:
        """Return an agent's latents of its pilots, all or some, in evaluation mode."""

    def defer(self, agent: Agent) -> None:
        """Take an agent's optimiser step as soon as all members are ready for theirs."""


class Agent:
    """One participant of the network: encoder, head, data, objective, optimiser and randomness.

    Nothing has to be subclassed.

    >>> inputs, labels = torch.randn(8, 4), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    >>> agent = Agent("ada", nn.Linear(4, 5), nn.Linear(5, 3), data=(inputs, labels))
    >>> agent
    Agent('ada', d=5, 8 training samples)
    >>> agent.encode(inputs).shape
    torch.Size([8, 5])

    Args:
        name: unique in the network; see `sheafed.names` for what is a name.
        encoder: any module; its `encode` method is used if it has one, else the call itself.
            It must give latents `(n, d)`; d is inferred from the first training samples. Inputs
            that are a mapping are passed as keyword arguments, `encoder(**inputs)`; a tuple or list
            as positional ones, `encoder(*inputs)`; a tensor as the only one.
        head: any module from latents to class scores or, for regression, to numbers, or none.
        data: training samples, or a mapping with `train` and optionally `validation` and `test`.
            Samples are an array; an (inputs, targets) pair, where inputs may be a mapping or tuple
            of arrays; a mapping of columns; a torch `Dataset`, a data set of Hugging Face or a list
            of rows; or a `DataLoader`, of which all but the order is used. Rows are inputs,
            (input, target) pairs or mappings of columns. Labels are whole numbers from 0 on, of any
            integer type; targets of regression are floating-point numbers, several labels `(n, k)`
            of any type. Inputs in float64 are cast to float32 if the encoder's weights are float32,
            and a warning says so.
        objective: a function of agent and batch that returns a scalar loss. The parameters of a
            module, e.g. with a decoder, are trained and checkpointed with the agent's.
        optimizer: a torch optimiser over the parameters, or a function from parameters to one; by
            default AdamW (`sheafed.agents.default_optimizer`). It must hold every parameter that
            is trained, and no other agent's.
        scheduler: a `torch.optim.lr_scheduler` of that optimiser, or a function from the optimiser
            to one; by default the learning rate is constant. `ReduceLROnPlateau` is refused.
        scheduler_every: after what the scheduler takes a step: every training `"step"`, or every
            `"epoch"`, i.e. as many training steps as `train` has rounds per epoch.
        batch_size: number of samples in a training step; 64 by default, or that of the DataLoader.
            Agents take their steps together: one with fewer batches than an epoch has rounds passes
            over its data more than once.
        max_grad_norm: bound on the norm of this agent's gradient, if any.
        frozen: never change the encoder, dropout and batch norm included. Its maps are still
            fitted, neighbours are still pulled towards it, and a head still learns. An encoder
            with neither parameters nor buffers is always frozen. An agent with nothing to train
            needs no optimiser and its objective is never called.
        classes: the names of the classes that labels 0, 1, ... stand for. Neighbours that both
            name their classes must name the same.
        collate_fn: from a list of rows to a batch, as a DataLoader has it, e.g. to pad token lists.
            Batches may differ in width.
        target: the column of the targets; by default `labels` or `label`, if there is one.
        num_workers: processes that read the rows of a `Dataset` ahead; by default none, or those
            of the DataLoader. The order of samples, and results, are the same for any number. If
            reading draws random numbers, it draws others with workers than without.
        metric: by which the agent's own head and those that read its latents are judged: a name
            of `sheafed.metrics.METRICS`, a `sheafed.metrics.Metric`, or a metric of torchmetrics.
            By default `"accuracy"`, and `"r2"` for the objective `mean_squared_error`.
        device: where the agent computes, e.g. `"cuda:0"`, or `"auto"`; by default where the
            encoder is. Its modules are moved there once, and inputs as they come. Agents of one
            network may be on different devices.
        precision: `"bf16"` runs encoder and head under bfloat16 autocast. Latents are float32
            beyond the encoder, as those of an encoder with weights in half precision are.
    """

    def __init__(
        self,
        name: str,
        encoder: nn.Module,
        head: nn.Module | None = None,
        *,
        data: Any,
        objective: Objective = cross_entropy,
        optimizer: Optimizer | MakeOptimizer = default_optimizer,
        scheduler: LRScheduler | MakeScheduler | None = None,
        scheduler_every: SchedulerPeriod = "step",
        batch_size: int | None = None,
        max_grad_norm: float | None = None,
        frozen: bool = False,
        classes: Sequence[str] | None = None,
        collate_fn: Collate | None = None,
        target: str | None = None,
        num_workers: int | None = None,
        metric: Metric | str | Any = None,
        device: str | torch.device | None = None,
        precision: Precision = "full",
    ) -> None:
        check_name(name)
        check_parts(name, encoder, head, objective, optimizer)
        check_numbers(name, batch_size, num_workers, max_grad_norm)
        check_classes(name, classes)
        check_period(name, scheduler_every)
        self.name = name
        self.encoder = encoder
        self.head = head
        with self._naming_errors():
            self.data = as_local_data(data, collate_fn, target, num_workers)
        train = self.data.train
        self.target = train.target if isinstance(train, DatasetSamples) else target
        """The column of the targets, if it was named."""
        self.objective = objective
        self.batch_size = as_int(batch_size) or self._batch_size_of_data()
        self.max_grad_norm = max_grad_norm
        self.classes = None if classes is None else tuple(classes)
        default = "r2" if objective is mean_squared_error else "accuracy"
        with self._naming_errors():
            self.metric = as_metric(default if metric is None else metric)
            check_metric(self.metric, self.data)
            check_targets(self.metric, objective, self.data)
        self.frozen = frozen or not encoder.state_dict()
        if self.frozen:
            encoder.eval().requires_grad_(False)
        self._latent_records: list[list[Tensor]] = []
        with self._naming_errors():
            first = self.data.train.batch(torch.arange(min(2, len(self.data.train))))
        modules = [m for m in (encoder, head, objective) if isinstance(m, nn.Module)]
        self.device = self._place(modules, device)
        self.precision = check_precision(name, precision)
        for module in modules:
            check_trainable(name, module)
        self._model = LocalModel(name, encoder, head, self.device, self.precision)
        self.input_structure = structure(first.inputs)
        latents = self._model.first_latents(first.inputs)
        self.dimension, self.dtype = int(latents.shape[-1]), latents.dtype
        self.regression = is_regression(self.metric, objective, first.targets)
        """Whether the head predicts numbers, not classes."""
        # A dictionary, since encoder and head may share parameters or be one module.
        self.parameters = list(dict.fromkeys(p for m in modules for p in m.parameters()))
        parts = {"encoder": encoder, "head": head, "objective": objective}
        self.optimizer = build_optimizer(
            name, optimizer, {what: m for what, m in parts.items() if isinstance(m, nn.Module)}
        )
        if isinstance(optimizer, Optimizer) and optimizer.state:
            # Loading moves it to where the parameters are now.
            optimizer.load_state_dict(optimizer.state_dict())
        self.scheduler = build_scheduler(name, scheduler, self.optimizer, self.learns)
        self.scheduler_every = scheduler_every
        self.hyperparameters = {
            **hyperparameters(self.optimizer, self.scheduler),
            **({} if self.scheduler is None else {"scheduler_every": scheduler_every}),
            "max_grad_norm": max_grad_norm,
            "precision": precision,
        }
        """What decides the agent's steps beside model, data and objective, at the beginning."""
        self.steps_per_epoch = 1
        check_finite_inputs(self, self.data)
        self._encodings = EncodingMemory()
        self.cohort: Cohort | None = None
        """The agents that this one takes its current step together with, if it does."""
        self.reset_rng(seed=0)

    @property
    def learns(self) -> bool:
        """Whether anything of this agent is trained."""
        return any(parameter.requires_grad for parameter in self.parameters)

    def reset_rng(self, seed: int) -> None:
        """Start the random streams and the data order anew, derived from the seed and the name.

        A training begins, so encodings are forgotten.
        """
        self.steps = 0
        self._seed = seed
        self.forget_encodings()
        self.order = DataOrder(len(self.data.train), self.batch_size, seed, self.name)
        self._stream = BatchStream(self.data.train, self.order, seed, self.name)
        self._rng = RngStream(self.device, seed, self.name)

    def encode(self, inputs: TensorTree) -> Tensor:
        """Return the latents `(n, d)` of inputs, in the encoder's current mode."""
        latents = self._model.encode(inputs)
        if latents.ndim != 2 or latents.shape[-1] != self.dimension:
            n = tree_length(inputs)
            raise LatentSizeError(
                f"agent {self.name!r}: the encoder gave latents of shape {tuple(latents.shape)} "
                f"for {n} inputs, expected ({n}, {self.dimension})"
                + (remedy(self, inputs) or "; its latent size must not change")
            )
        for record in self._latent_records:
            record.append(latents)
        return latents

    def apply_head(self, latents: Tensor, head: nn.Module | None = None) -> Tensor:
        """Return what the head, or another one of its kind, gives for latents `(n, d)`.

        It is in float32 if the head is in less.
        """
        return self._model.apply_head(latents, head)

    def samples_of(self, given: Any) -> Samples:
        """Return data in any form as samples, read by `target` and `collate_fn` as the own are."""
        with self._naming_errors():
            return as_samples_like(self.data.train, given, self.target)

    @contextmanager
    def record_latents(self) -> Iterator[list[Tensor]]:
        """Collect what `encode` returns, e.g. to an objective, while the context is open."""
        self._latent_records.append([])
        try:
            yield self._latent_records[-1]
        finally:
            self._latent_records.pop()

    def inference(self) -> AbstractContextManager[None]:
        """Put encoder and head into evaluation mode, and back into each module's mode on exit."""
        return self._model.inference()

    def rng_context(self) -> AbstractContextManager[None]:
        """Make torch's global streams this agent's own, e.g. for dropout and augmentation."""
        return self._rng.active()

    @torch.no_grad()
    def encode_samples(
        self, samples: Samples, rows: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the latents `(n, d)` of samples, all or some, in evaluation mode, and the targets.

        Latents are on the agent's device, targets on the CPU. What the encoder draws at random is
        the same each time.
        """
        latents, targets = [], []
        chosen = torch.arange(len(samples)) if rows is None else rows
        parts = torch.split(chosen, ENCODING_BATCH_SIZE)
        reading, stream = closing(batches(samples, parts)), self.encoding_stream("encoding")
        with self.inference(), self._naming_errors(), stream, reading as read:
            for batch in read:
                with naming_inputs(self, "inputs", batch.inputs):
                    latents.append(self.encode(batch.inputs))
                targets.append(batch.targets)
        known = [t for t in targets if t is not None]
        check_finite_latents(self.name, encoded := torch.cat(latents))
        return encoded, torch.cat(known).cpu() if known else None

    def encode_once(self, samples: Samples, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what `encode_samples` does; in one training, not encoded again for nothing.

        That is while weights and data are the same, as far as `EncodingMemory` can tell. What a
        callback changes beside them in training, e.g. an attribute of the encoder, needs
        `forget_encodings`.
        """
        encode = partial(self.encode_samples, samples, rows)
        return self._encodings.recall(self.encoder, samples, rows, encode)

    def encoding_stream(self, purpose: str) -> AbstractContextManager[None]:
        """Make torch's global streams one of the agent's that begins anew each time.

        What an encoder draws in evaluation mode follows from seed, name and purpose: neither
        results nor other random streams depend on what is remembered.
        """
        return RngStream(self.device, self._seed, f"{self.name} {purpose}").active()

    def forget_encodings(self) -> None:
        """Encode samples and pilots again, even if the weights are the same."""
        self._encodings.clear()

    @property
    def times_forgotten(self) -> int:
        """How often encodings were forgotten; what was encoded before that no longer holds."""
        return self._encodings.times_cleared

    def next_batch(self) -> Batch:
        """Return the next training batch in this agent's own order, on its device."""
        with self._naming_errors():
            return self.prepare(self._stream.next())

    def prepare(self, batch: Batch) -> Batch:
        """Return a batch on the agent's device, inputs in the precision of its encoder."""
        targets = None if batch.targets is None else batch.targets.to(self.device)
        return Batch(self._model.prepare(batch.inputs), targets)

    def stop_workers(self) -> None:
        """End the processes that read training data ahead; the next batch starts others."""
        self._stream.close()

    def optimizer_step(self, loss: Tensor) -> None:
        """Take one optimiser step on a scalar loss."""
        self.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.apply_gradients()

    def zero_grad(self) -> None:
        """Clear the gradient; before `apply_gradients` any number of losses may go backward.

        A loss that was computed in evaluation mode must go backward before the next pass in
        training mode: that one moves batch norm's running statistics in place, which autograd does
        not notice, and the earlier pass would get the gradient of other statistics.
        """
        for parameter in self.parameters:  # all of the optimiser's, and those that it has not
            parameter.grad = None

    def apply_gradients(self) -> None:
        """Clip the accumulated gradient, take an optimiser step and then the scheduler's.

        In a cohort it is taken when all members have come here.
        """
        if self.cohort is not None:
            self.cohort.defer(self)
            return
        if self.max_grad_norm is not None:
            self.check_gradient(nn.utils.clip_grad_norm_(self.parameters, self.max_grad_norm))
        try:
            self.optimizer.step()
        except TypeError as problem:  # as that of LBFGS
            raise OptimizerError(
                f"agent {self.name!r}, step {self.steps}: its optimiser fails: {problem}; take one "
                "whose step() needs no closure, e.g. torch.optim.Adam"
            ) from problem
        except RuntimeError as problem:
            if "without overflow" not in str(problem):
                raise
            raise NonFiniteError(
                f"agent {self.name!r}, step {self.steps}: a setting of the optimiser is too "
                f"large ({problem}); lower the learning rate or the weight decay"
            ) from problem
        self.count_step()

    def check_gradient(self, norm: Tensor) -> None:
        """Raise unless the norm of the gradient is finite."""
        if not bool(torch.isfinite(norm)):
            raise NonFiniteError(
                f"agent {self.name!r}, step {self.steps}: the norm of the gradient is "
                f"{norm.item()}; lower the learning rate, or check the data"
            )

    def count_step(self) -> None:
        """Note that an optimiser step was taken, and take the scheduler's if it is due."""
        self.steps += 1
        period = 1 if self.scheduler_every == "step" else self.steps_per_epoch
        if self.scheduler is not None and self.steps % period == 0:
            self._scheduler_step(self.scheduler)

    def _scheduler_step(self, scheduler: LRScheduler) -> None:
        try:
            scheduler.step()
        except Exception as problem:
            raise OptimizerError(
                f"agent {self.name!r}, step {self.steps}: its scheduler fails: {problem}; give a "
                "schedule of as many steps as the training has, or one that does not end; "
                f"scheduler_every={self.scheduler_every!r} says how often it takes one"
            ) from problem

    def weights(self) -> dict[str, Any]:
        """Return the state of encoder and head."""
        return {
            "encoder": dict(self.encoder.state_dict()),
            "head": None if self.head is None else dict(self.head.state_dict()),
        }

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Take what `weights` returned, and nothing else."""
        self.encoder.load_state_dict(state["encoder"])
        if self.head is not None:
            self.head.load_state_dict(state["head"])

    def state(self) -> dict[str, Any]:
        """Return everything that changes in training."""
        return {
            **self.weights(),
            "objective": (
                dict(self.objective.state_dict()) if isinstance(self.objective, nn.Module) else None
            ),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            **self._rng.state(),
            "position": self.order.position,
            "steps": self.steps,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned, after `reset_rng` with the same seed."""
        self.load_weights(state)
        if isinstance(self.objective, nn.Module):
            self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self._rng.load_state(state)
        self.order.seek(state["position"])
        self.stop_workers()
        self.steps = state["steps"]

    def _place(
        self, modules: Iterable[nn.Module], device: str | torch.device | None
    ) -> torch.device:
        """Move the modules to a device, by default the encoder's, and return it."""
        try:
            place = device_of(self.encoder) if device is None else as_device(device)
        except InputError as problem:
            raise InputError(f"agent {self.name!r}: {problem}") from problem
        for module in modules:
            module.to(place)
        return place

    def _batch_size_of_data(self) -> int:
        train = self.data.train
        own = train.batch_size if isinstance(train, DatasetSamples) else None
        return own or DEFAULT_BATCH_SIZE

    @contextmanager
    def _naming_errors(self) -> Iterator[None]:
        """Add the agent's name to errors about its data, which know nothing of agents."""
        try:
            yield
        except InputError as problem:
            if f"agent {self.name!r}" in str(problem):
                raise
            raise type(problem)(f"agent {self.name!r}: {problem}") from problem

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, d={self.dimension}, {len(self.data.train)} training samples)"
