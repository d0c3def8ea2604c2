"""What every table of a config is made of."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


class Table(BaseModel):
    """A table of the file: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)
