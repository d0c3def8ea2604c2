"""Sheaf-FMTL, with restriction maps between parameter spaces."""

from sheafed.methods.sheaf_fmtl.method import SheafFMTL

__all__ = ["SheafFMTL"]
