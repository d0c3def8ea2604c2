"""Sheaf-FRL, the method of the paper."""

from sheafed.methods.sheaf_frl.method import SheafFRL

__all__ = ["SheafFRL"]
