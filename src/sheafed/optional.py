"""Libraries that only some uses need, and that `pip install sheafed` does not bring."""

from importlib.util import find_spec

from sheafed.errors import MissingDependencyError


def require_extra(extra: str, purpose: str, *modules: str) -> None:
    """Raise, saying what to install, unless these modules can be imported.

    Args:
        extra: that brings them.
        purpose: what they are needed for.
        modules: top-level names.
    """
    if missing := [module for module in modules if not is_installed(module)]:
        raise MissingDependencyError(
            f"{purpose} needs {' and '.join(missing)}; install with: pip install 'sheafed[{extra}]'"
        )


def is_installed(module: str) -> bool:
    """Whether a top-level module can be imported; it is not imported."""
    try:
        return find_spec(module) is not None
    except ValueError:  # it is being imported, or was made by hand without a specification
        return True
