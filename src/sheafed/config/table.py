"""The base class of the tables of an experiment."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from sheafed.options import reject_unknown_keys


class Table(BaseModel):
    """A table of the file: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _reject_unknown_keys(cls, given: Any) -> Any:
        return reject_unknown_keys(given, list(cls.model_fields))
