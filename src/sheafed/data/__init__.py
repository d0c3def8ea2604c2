"""Data sets and the ways to divide them among agents."""

from sheafed.data.cache import data_directory
from sheafed.data.own import from_arrays, from_dataset, from_folder
from sheafed.data.sets import DataSet, load

__all__ = ["DataSet", "data_directory", "from_arrays", "from_dataset", "from_folder", "load"]
