"""Shared parts of the components: YAML models, and a context that names the YAML file in errors."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from pkgutil import resolve_name
from typing import Any, Literal, Self

import dagster as dg
from pydantic import BaseModel, Field, ModelWrapValidatorHandler, TypeAdapter, ValidationError, model_validator

from feed_assets.core.cadence import Cadence
from feed_assets.core.completeness import GRAINS, RATIO, Completeness
from feed_assets.core.csv_dialect import Encoding
from feed_assets.core.errors import FeedAssetsError, InvalidDefinition
from feed_assets.core.profiles import Profile
from feed_assets.core.source_lines import declared_at, declaring
from feed_assets.orchestration.execute.yaml_errors import in_our_words
from feed_assets.runs import checks
from feed_assets.runs.checks import Check


@contextmanager
def placed(context: dg.ComponentLoadContext) -> Generator[None]:
    """Within the block, declarations and errors refer to the YAML file, instead of to a line of Python."""
    with declaring(str(context.path / "defs.yaml")):
        try:
            yield
        except FeedAssetsError as error:
            error.place = declared_at()
            raise


class DeclaredComponent(dg.Component, dg.Model):
    """A component whose attributes are arguments of Python's declarations, including dataclasses (ADR 24)."""

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """Return the class itself as the model of its attributes.

        The model that Dagster would derive from it supports neither dataclasses (`Wait`) nor durations.
        """
        return cls

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:  # noqa: ARG003
        """Return the component for the attributes, validated by pydantic."""
        return cls.model_validate(attributes or {})

    @model_validator(mode="wrap")
    @classmethod
    def _say_where(cls, attributes: object, handler: "ModelWrapValidatorHandler[Self]") -> Self:
        """Raise each error as an error of pydantic with our own text. Dagster then adds the line of the YAML file."""
        try:
            return handler(attributes)
        except ValidationError as error:
            raise in_our_words(error, attributes, cls) from None
        except FeedAssetsError as error:
            raise ValueError(str(error)) from error


class CsvModel(dg.Model):
    """The CSV dialect: the last arguments of `foreign_feed`. That function checks them."""

    delimiter: str = ","
    quote: str | None = '"'
    encoding: Encoding = "UTF-8"
    header: bool = True
    null_value: str | None = None

    @property
    def csv_options(self) -> dict[str, Any]:
        """Return the arguments, by name."""
        return {name: getattr(self, name) for name in CsvModel.model_fields}


class PresentationModel(dg.Model):
    """Presentation of an asset in Dagster: arguments of `feed_asset` and `foreign_feed`. These functions check them."""

    description: str | None = None
    group_name: str | None = None
    tags: dict[str, str] = Field(default_factory=dict[str, str])
    kinds: list[str] = Field(default_factory=list[str])
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    owners: list[str] | None = None

    @property
    def presentation(self) -> dict[str, Any]:
        """Return the arguments, by name."""
        names = PresentationModel.model_fields
        return {name: getattr(self, name) for name in names} | {"kinds": {*self.kinds}}


class CompletenessModel(dg.Model):
    """Rules for complete windows: the arguments of `Completeness`."""

    grains: list[str] = Field(default_factory=lambda: list(GRAINS))
    ratio: str = RATIO
    tiers: list[str] = Field(default_factory=list[str])
    tz: str = "UTC"

    @property
    def value(self) -> Completeness:
        """Return the `Completeness` that Python would declare. Raise InvalidDefinition if a value is invalid."""
        return Completeness(tuple(self.grains), self.ratio, tuple(self.tiers), self.tz)


class CadenceModel(dg.Model):
    """Times at which partitions or events are expected: the arguments of `Cadence`."""

    cron: str | None = None
    tolerance: str = "PT1H"
    timezone: str = "UTC"

    @property
    def value(self) -> Cadence:
        """Return the `Cadence` that Python would declare. Raise InvalidDefinition if a value is invalid."""
        try:
            tolerance = _DURATION.validate_python(self.tolerance)
        except ValidationError as error:
            problem = f"the tolerance of the cadence is {self.tolerance!r}"
            raise InvalidDefinition(f"{problem}: expected a duration, such as PT1H or P2D.") from error
        return Cadence(self.cron, tolerance, self.timezone)


_DURATION = TypeAdapter(timedelta)


class ProfileModel(dg.Model):
    """Measures: the arguments of `Profile`."""

    measures: dict[str, str] = Field(default_factory=lambda: dict(Profile().measures))
    baseline: str = Profile().baseline
    off_by: float = Profile().off_by

    @property
    def value(self) -> Profile:
        """Return the `Profile` that Python would declare. Raise InvalidDefinition if a value is invalid."""
        return Profile(self.measures, self.baseline, self.off_by)


class CheckModel(dg.Model):
    """A check: `{check: not_null, arguments: [id]}`, or `{check: few, aggregate: count(1), within: [1, 9]}`."""

    check: str
    arguments: list[Any] = Field(default_factory=list[Any])
    aggregate: str | None = None
    within: list[float] = Field(default_factory=list[float])
    severity: Literal["ERROR", "WARN"] = "ERROR"

    @property
    def value(self) -> Check:
        """Return the check that Python would declare. Raise InvalidDefinition if a value is invalid."""
        check = self._own(self.aggregate) if self.aggregate else self._built_in()
        return check.warn() if self.severity == "WARN" else check

    def _own(self, aggregate: str) -> Check:
        if len(self.within) != 2:
            raise InvalidDefinition(
                f"check {self.check}: `within` is {self.within}, expected two numbers: [low, high]."
            )
        low, high = self.within
        description = f"{aggregate} must be in [{low:g}, {high:g}]"
        return Check(self.check, description, lambda number: low <= number <= high, aggregate)

    def _built_in(self) -> Check:
        if self.check not in _KNOWN:
            raise InvalidDefinition(f"check {self.check}: expected one of {', '.join(_KNOWN)}, or an aggregate.")
        return _KNOWN[self.check](*self.arguments)


_KNOWN: dict[str, Callable[..., Check]] = {
    "not_empty": checks.not_empty,
    "not_null": checks.not_null,
    "unique": checks.unique,
    "within": checks.within,
    "references": checks.references,
    "accounted": checks.accounted,
}


FUNCTION = "a function, such as my_project.tables.rows"
"""The expected form of a function's path, in words."""


def object_at(attribute: str, path: str, expected: str = FUNCTION) -> Any:
    """Return the object at an attribute's path, such as `my_project.tables.rows`.

    Raise InvalidDefinition if there is no such object.
    """
    try:
        with declaring(None):  # The imported module may itself contain declarations.
            return resolve_name(path)
    except (AttributeError, ImportError, ValueError) as error:
        raise InvalidDefinition(f"{attribute}: {path!r}: {error}: expected {expected}.") from None
