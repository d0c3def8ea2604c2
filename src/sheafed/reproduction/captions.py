"""What was run, in words that are made from the plan itself."""

from __future__ import annotations

from collections.abc import Sequence

from sheafed.config.federation import agent_names
from sheafed.reproduction.plan import Plan


def percent(fraction: float) -> str:
    """Return a fraction as people write it."""
    return f"{100 * fraction:g}%"


def note(plan: Plan) -> str:
    """Return the line that stands on the figure."""
    first = plan.experiment(plan.variant(plan.curves[0], plan.values[0]))
    return (
        f"{plan.scale}: {len(agent_names(first))} agents, "
        f"{percent(first.data.train_fraction)} of the training data of {first.data.name}, "
        f"{first.training.epochs} epochs, {len(plan.seeds)} seeds"
    )


def paragraph(plan: Plan, samples: Sequence[int]) -> str:
    """Return exactly what was run.

    Args:
        plan: the plan.
        samples: the numbers of training samples that agents had.
    """
    first = plan.experiment(plan.variant(plan.curves[0], plan.values[0]))
    table, names = first.training, agent_names(first)
    chosen = [curve.label for curve in plan.curves if plan.has_penalty(curve)]
    alone = [curve.label for curve in plan.curves if not plan.has_penalty(curve)]
    ours = [curve.label for curve in plan.curves if curve.ours]
    clip = (
        "no clipping"
        if table.max_grad_norm is None
        else f"gradients clipped at {table.max_grad_norm:g} per agent"
    )
    held = f"{samples[0]:,} to {samples[-1]:,}" if samples else "no"
    weighting = "the average over directed edges" if plan.degree_weighted else "the mean of agents"
    sentences = [
        f"{plan.title} at scale {plan.scale}.",
        f"Data: {first.data.name}, {first.data.partition}"
        + ("" if plan.axis == "data.shift" else f" with s = {first.data.shift:g}")
        + f", {percent(first.data.pilot_fraction)} of the samples as pilots; "
        f"{percent(first.data.train_fraction)} of each agent's training samples were used "
        f"({held} per agent).",
        f"Agents: {len(names)} of the family {first.model.family} ({', '.join(names)}).",
        f"Axis: {plan.axis} = {', '.join(plan.values)}.",
        f"Training: {table.epochs} epochs, {table.optimizer} with learning rate "
        f"{table.learning_rate:g}, momentum {table.momentum:g}, weight decay "
        f"{table.weight_decay:g}, batches of {table.batch_size}, {clip}, {table.threads} torch "
        "thread(s) per run.",
        f"Seeds: {', '.join(map(str, plan.seeds))}; figures are means and standard deviations "
        "over them, at the last epoch, on test data.",
        f"Lambda of {', '.join(chosen)}: one of {', '.join(plan.penalties)}, chosen for each "
        f"method and each value of {plan.axis} by the mean of private and communication accuracy "
        f"on validation data, with seed {plan.seeds[0]} only, and then used with all seeds; runs "
        "that diverged cannot be chosen.",
    ]
    if alone:
        sentences.append(f"Without a lambda: {', '.join(alone)}.")
    sentences += [
        f"Communication accuracy is {weighting}.",
        "Methods that are aligned after training have two columns from the same training: fair, "
        "their whitening fitted on the pilots, as Sheaf-FRL has it, which is also what lambda was "
        "chosen by; and as in paper, fitted on private training data. Methods that learn their "
        "maps in training have one, under fair.",
        "Ceiling: the receiver encodes the sender's test inputs itself, averaged likewise.",
    ]
    if ours:
        sentences.append(f"Beyond the paper, dashed: {', '.join(ours)}.")
    if plan.remark:
        sentences.append(plan.remark)
    return " ".join(sentences) + "\n"
