"""Tables, images and what is known of them: schema, hierarchies, integer codes, certificates, data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.data.certificate import Certificate as Certificate
    from sfumato.data.claim import Claim as Claim
    from sfumato.data.guarantee import Guarantee as Guarantee
    from sfumato.data.hierarchies.hierarchy import Hierarchy as Hierarchy
    from sfumato.data.images import Images as Images
    from sfumato.data.io.images import read_images as read_images
    from sfumato.data.recipe import Recipe as Recipe
    from sfumato.data.release import Artifact as Artifact
    from sfumato.data.release import Provenance as Provenance
    from sfumato.data.release import Release as Release
    from sfumato.data.release import Releases as Releases
    from sfumato.data.released_values import Interval as Interval
    from sfumato.data.schema import Column as Column
    from sfumato.data.schema import Kind as Kind
    from sfumato.data.schema import Role as Role
    from sfumato.data.schema import Schema as Schema
    from sfumato.data.table import Table as Table
    from sfumato.data.table import read as read
    from sfumato.data.table import write as write

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "certificate": "Certificate",
        "claim": "Claim",
        "hierarchies.hierarchy": "Hierarchy",
        "guarantee": "Guarantee",
        "images": "Images",
        "io.images": "read_images",
        "recipe": "Recipe",
        "release": "Artifact Provenance Release Releases",
        "released_values": "Interval",
        "schema": "Column Kind Role Schema",
        "table": "Table read write",
    },
)
