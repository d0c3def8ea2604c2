"""What sets a run apart from plain Sheaf-FRL among agents that classify pixels, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sheafed.report.run_reader import Record


def particulars(config: Record) -> list[str]:
    """Return a phrase for each capability that a config uses."""
    return [*_of_the_method(config.get("method", {})), *_of_the_agents(config.get("model", {}))]


def _of_the_method(method: Record) -> Iterator[str]:
    if method.get("privacy") == "strict":
        yield "strict protocol"
    if method.get("distillation") is not None:
        yield "distillation"
    if disturbances := list(_of_the_channel(method.get("channel") or {})):
        yield f"channel with {', '.join(disturbances)}"
    if method.get("edge_dim") is not None:
        yield f"edge stalks of at most {method['edge_dim']}"
    if noise := method.get("noise"):
        yield (
            f"Gaussian noise on pilots, ε = {noise['epsilon']:g} and δ = {noise['delta']:g} "
            "per release"
        )


def _of_the_channel(channel: Record) -> Iterator[str]:
    if channel.get("snr_db") is not None:
        yield f"an SNR of {channel['snr_db']:g} dB"
    if channel.get("erasure"):
        yield f"{100 * channel['erasure']:g} % erasures"
    if channel.get("bits") is not None:
        yield f"{channel['bits']} bits per number"
    if channel.get("when") == "inference":
        yield "at inference only"


def _of_the_agents(model: Record) -> Iterator[str]:
    agents = model.get("agents", [])
    everybody = (model.get("objective") or {}).get("name", "cross-entropy")
    if everybody != "cross-entropy":
        yield f"objective {everybody}"
    own = {agent["name"]: agent.get("objective") for agent in agents} | model.get("objectives", {})
    yield from _by_name("objective", ((name, goal["name"]) for name, goal in own.items() if goal))
    modalities = ((agent["name"], agent.get("modality", "pixels")) for agent in agents)
    yield from _by_name(
        "modality", ((name, modality) for name, modality in modalities if modality != "pixels")
    )
    unlabelled = [agent["name"] for agent in agents if agent.get("labels") is False]
    if without := [*unlabelled, *model.get("unlabelled", [])]:
        yield f"no labels for {', '.join(without)}"


def _by_name(what: str, pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Say which agents have which value of something."""
    holders: dict[str, list[str]] = {}
    for name, value in pairs:
        holders.setdefault(value, []).append(name)
    for value, names in holders.items():
        yield f"{what} {value} for {', '.join(names)}"
