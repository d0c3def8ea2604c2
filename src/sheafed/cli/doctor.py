"""`sheafed doctor`: installed and missing packages, and how to install them."""

import platform
import sys
from importlib import metadata
from importlib.util import find_spec

from packaging.requirements import Requirement
from rich.console import Console
from rich.table import Table

import sheafed

EXTRAS = {
    "report": "figures, and the page of `sheafed report`",
    "network": "one process per agent, over Zenoh",
    "pretrained": "encoders of timm and of Hugging Face transformers",
    "text": "text encoders by name",
    "export": "ONNX files of trained networks",
    "tensorboard": "metrics in TensorBoard",
    "mlflow": "metrics in MLflow",
    "wandb": "metrics in Weights & Biases",
    "tune": "hyperparameter search with Optuna",
    "docs": "the documentation site",
    "dev": "tests and linters",
}
MODULES = {"eclipse-zenoh": "zenoh"}


def doctor() -> None:
    """List installed and missing packages, required and optional, and how to install them."""
    import torch

    from sheafed.devices import auto_device, available_devices

    required, extras = _requirements()
    console = Console()
    console.print(
        f"sheafed {sheafed.__version__}, Python {platform.python_version()} on "
        f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} torch threads"
    )
    console.print(
        f"torch {torch.__version__} computes on {', '.join(map(_device, available_devices()))}; "
        f"training.device=auto takes {auto_device()}"
    )
    table = Table("part", "packages", "state")
    broken = _missing(required)
    table.add_row("required", _versions(required), _state(broken, "pip install sheafed"))
    for extra, requirements in extras.items():
        table.add_row(
            f"{extra}: {EXTRAS[extra]}",
            _versions(requirements),
            _state(_missing(requirements), f"pip install 'sheafed\\[{extra}]'"),
        )
    console.print(table)
    if broken:
        print(f"error: required packages are missing: {', '.join(broken)}", file=sys.stderr)
        raise SystemExit(1)


def _device(name: str) -> str:
    import torch

    return f"{name} ({torch.cuda.get_device_name(name)})" if name.startswith("cuda") else name


def _requirements() -> tuple[list[Requirement], dict[str, list[Requirement]]]:
    declared = [Requirement(text) for text in metadata.requires("sheafed") or []]
    extras = {
        extra: [r for r in declared if r.marker and r.marker.evaluate({"extra": extra})]
        for extra in EXTRAS
    }
    return [r for r in declared if r.marker is None], extras


def _version(requirement: Requirement) -> str | None:
    try:
        return metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return None


def _missing(requirements: list[Requirement]) -> list[str]:
    """Return what is not installed, too old, or installed without its module."""
    missing = []
    for requirement in requirements:
        version = _version(requirement)
        module = MODULES.get(requirement.name)
        if (
            version is None
            or not requirement.specifier.contains(version, prereleases=True)
            or (module is not None and find_spec(module) is None)
        ):
            missing.append(requirement.name)
    return list(dict.fromkeys(missing))


def _versions(requirements: list[Requirement]) -> str:
    listed = (f"{r.name} {_version(r) or '-'}" for r in requirements)
    return ", ".join(dict.fromkeys(listed))  # of two parts of an extra, one may ask for more


def _state(missing: list[str], remedy: str) -> str:
    return f"missing {', '.join(missing)}: {remedy}" if missing else "installed"
