"""A description of what was run, made from the plan itself."""

from __future__ import annotations

from collections.abc import Sequence

from sheafed.methods import ZCA
from sheafed.reproduction.plan import AccuracyPlan
from sheafed.training.post_hoc_maps import SHRINKAGES


def percent(fraction: float) -> str:
    return f"{100 * fraction:g}%"


def subtitle(plan: AccuracyPlan) -> str:
    """Return the line above the figure."""
    first = plan.experiment(plan.variant(plan.curves[0], plan.values[0]))
    return (
        f"{plan.scale}: {len(first.model.agent_names())} agents, "
        f"{percent(first.data.train_fraction)} of the training data of {first.data.name}, "
        f"{first.training.epochs} epochs, {len(plan.seeds)} seeds"
    )


def description(plan: AccuracyPlan, samples: Sequence[int]) -> str:
    """Return a paragraph on the data, the agents, the training and the averages.

    `samples` are the sorted numbers of training samples per agent.
    """
    first = plan.experiment(plan.variant(plan.curves[0], plan.values[0]))
    data, training, names = first.data, first.training, first.model.agent_names()
    with_lambda = [curve.label for curve in plan.curves if plan.has_penalty(curve)]
    without_lambda = [curve.label for curve in plan.curves if not plan.has_penalty(curve)]
    beyond_paper = [curve.label for curve in plan.curves if curve.beyond_paper]
    clipping = (
        "no gradient clipping"
        if training.max_grad_norm is None
        else f"gradients clipped at {training.max_grad_norm:g} per agent"
    )
    partition = (
        data.partition
        if plan.axis == "data.shift"
        else (f"{data.partition} with s = {data.shift:g}")
    )
    used = f"{samples[0]:,} to {samples[-1]:,}" if samples else "no"
    weighting = "the average over directed edges" if plan.degree_weighted else "the mean of agents"
    sentences = [
        f"{plan.title} at scale {plan.scale}.",
        f"Data: {data.name}, {partition}, {percent(data.pilot_fraction)} of the samples as pilots; "
        f"{percent(data.train_fraction)} of each agent's training samples were used "
        f"({used} per agent).",
        f"Agents: {len(names)} of the family {first.model.family} ({', '.join(names)}).",
        f"Axis: {plan.axis} = {', '.join(plan.values)}.",
        f"Training: {training.epochs} epochs, {training.optimizer} with learning rate "
        f"{training.learning_rate:g}, momentum {training.momentum:g}, weight decay "
        f"{training.weight_decay:g}, batch size {training.batch_size}, {clipping}, "
        f"{training.threads} torch thread(s) per run.",
        f"Seeds: {', '.join(map(str, plan.seeds))}; results are means and standard deviations "
        "over them, at the last epoch, on test data.",
        f"Lambda of {', '.join(with_lambda)}: one of {', '.join(plan.penalties)}, chosen for each "
        f"method and each value of {plan.axis} by the mean of private and communication accuracy "
        f"on validation data, with seed {plan.seeds[0]} only, and then used with all seeds; runs "
        "that diverged cannot be chosen.",
        "While the best lambda was the largest or the smallest tried, the next one by the ratio of "
        f"the grid was tried too, up to {plan.extensions} of them; where the best was still at the "
        "edge then, the table says so.",
    ]
    if without_lambda:
        sentences.append(f"Without a lambda: {', '.join(without_lambda)}.")
    sentences += [
        f"Communication accuracy is {weighting}.",
        "Shrinkage of the covariance before whitening, for every method that whitens: one of "
        f"{', '.join(f'{s:g}' for s in SHRINKAGES)}. For methods that are aligned after training "
        "it is chosen in each run, by communication accuracy on validation data, without training "
        "anew. In Sheaf-FRL training depends on it: lambda is chosen with a shrinkage of "
        f"{ZCA().shrinkage:g}, then the shrinkage by further runs, in the same way as lambda.",
        "Methods that are aligned after training have two columns from the same training: fair, "
        "with the whitening fitted on the pilots, as in Sheaf-FRL, and shrunk as said, which is "
        "also what lambda was chosen by; and as in paper, with classical ZCA fitted on private "
        "training data, shrunk only where its covariance is singular, by as little as that takes. "
        "Methods that learn their maps in training have one column, fair.",
        "Oracle accuracy: the receiver encodes the sender's test inputs itself; averaged likewise.",
    ]
    if beyond_paper:
        sentences.append(f"Beyond the paper, dashed: {', '.join(beyond_paper)}.")
    if plan.remark:
        sentences.append(plan.remark)
    return " ".join(sentences) + "\n"
