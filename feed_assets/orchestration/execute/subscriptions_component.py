"""A YAML component for subscriptions: targets that are notified of each change of a dataset."""

from typing import Annotated, cast

import dagster as dg
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from feed_assets.core.delivery_targets import RefreshView, Statement, Transition, Webhook
from feed_assets.orchestration.declare.on_change import on_change
from feed_assets.orchestration.execute.yaml_assets import asset_of, once
from feed_assets.orchestration.execute.yaml_models import DeclaredComponent, placed

_TARGET_BY_KEY = {"url": "webhook", "view": "view", "sql": "statement"}
_EXPECTED = "a mapping with `url` and `secret`, `view` and `warehouse`, or `sql` and `warehouse`"


def _kind(value: object) -> str | None:
    """Return the kind of target that has these arguments. Error messages then name the arguments of this kind only."""
    keys = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    return next((kind for key, kind in _TARGET_BY_KEY.items() if key in keys), None)


_Target = Annotated[
    Annotated[Webhook, Tag("webhook")] | Annotated[RefreshView, Tag("view")] | Annotated[Statement, Tag("statement")],
    Discriminator(_kind, custom_error_type="target", custom_error_message=_EXPECTED),
]


class SubscriptionModel(BaseModel):
    """One subscription: the arguments of `on_change`, with the dataset by its key or Python path."""

    model_config = ConfigDict(extra="forbid")

    dataset: str
    """The asset's key. Without `at`, the asset's Python path, such as `my_project.defs.shop.sales`."""
    at: str | None = None
    """The folder or file of `defs/` that declares the dataset."""
    name: str
    to: _Target
    transitions: Annotated[list[Transition], Field(min_length=1)] | None = None
    grain: str | None = None
    level: str | None = None
    description: str | None = None
    owners: list[str] | None = None


class SubscriptionsComponent(DeclaredComponent):
    """Subscriptions to changes of datasets, as external assets: the arguments of `on_change`.

    Args:
        subscriptions: The subscriptions, each with `dataset`, `at` (the folder of `defs/` that declares it), `name`,
            `to`, and other arguments of `on_change`. `to` has the arguments of `Webhook`, `RefreshView` or `Statement`.
    """

    subscriptions: list[SubscriptionModel]

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return one external asset for each subscription."""
        with placed(context), once(context):
            return dg.Definitions(assets=[_spec(context, each) for each in self.subscriptions])


def _spec(context: dg.ComponentLoadContext, declared: SubscriptionModel) -> dg.AssetSpec:
    names = declared.model_fields_set - {"dataset", "at", "transitions"}
    arguments = {name: getattr(declared, name) for name in names}
    if declared.transitions:
        arguments["transitions"] = declared.transitions
    return on_change(asset_of(context, "dataset", declared.dataset, declared.at), **arguments)
