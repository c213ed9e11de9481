"""Versions of a feed side by side: the page of an older version links to the newest one and to its own readers."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import dagster as dg

from feed_assets.core.feeds import newer_versions
from feed_assets.orchestration.declare.agreement import with_assets
from feed_assets.orchestration.declare.declarations import Dataset, Rejects, declaration_of, specs_of
from feed_assets.orchestration.declare.input_specs import page_of

NEWER, READ_BY = "feed_assets/newer_version", "feed_assets/still_read_by"
"""Metadata names for an older version: a link to the newest version, and links to its readers."""


def with_versions(definitions: dg.Definitions) -> dg.Definitions:
    """Return definitions in which each older version of a feed links to its readers and to the newest version."""
    versions = _Versions.of(specs_of(definitions))
    if not versions.metadata:
        return definitions
    return with_assets(definitions, [versions.said_of(each) for each in definitions.assets or ()])


@dataclass(frozen=True)
class _Versions:
    """Metadata to add to older versions, by asset key."""

    metadata: Mapping[dg.AssetKey, Mapping[str, Any]]

    @classmethod
    def of(cls, specs: Sequence[dg.AssetSpec]) -> "_Versions":
        declared = [(declaration, spec) for spec in specs if (declaration := declaration_of(spec))]
        keys = {declaration.feed: spec.key for declaration, spec in declared}
        main = {declaration.feed: declaration for declaration, _ in declared if not isinstance(declaration, Rejects)}
        readers = [spec for declaration, spec in declared if declaration.feed in main]
        outputs = {
            feed: declaration.outputs if isinstance(declaration, Dataset) else (feed,)
            for feed, declaration in main.items()
        }
        return cls(
            {
                keys[old]: _metadata({keys[each] for each in outputs[old]}, keys[new], readers)
                for old, new in newer_versions(main).items()
            }
        )

    def said_of(self, asset: Any) -> Any:
        """Return a copy of an asset or spec with metadata about newer versions of its feed."""
        if isinstance(asset, dg.AssetSpec):
            return self._with(asset)
        is_older = isinstance(asset, dg.AssetsDefinition) and self.metadata.keys() & {*asset.keys}
        return asset.map_asset_specs(self._with) if is_older else asset

    def _with(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        return spec.merge_attributes(metadata=self.metadata.get(spec.key, {}))


def _metadata(old: Set[dg.AssetKey], new: dg.AssetKey, specs: Sequence[dg.AssetSpec]) -> Mapping[str, Any]:
    """Return Dagster metadata that links an old version of a feed to its readers and to the newest version.

    The old version's rejects get the same metadata.
    """
    readers = sorted({spec.key for spec in specs for dep in spec.deps if dep.asset_key in old} - old)
    links = [f"- [{key.to_user_string()}]({page_of(key)})" for key in readers]
    read_by = dg.MetadataValue.md("\n".join(links) or "nobody in this code location")
    return {NEWER: dg.MetadataValue.asset(new), READ_BY: read_by}
