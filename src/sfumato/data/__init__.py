"""Tables and what is known of them: schema, hierarchies, integer codes, certificates, data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.data.certificate import Certificate as Certificate
    from sfumato.data.hierarchies.hierarchy import Hierarchy as Hierarchy
    from sfumato.data.hierarchies.rules import Interval as Interval
    from sfumato.data.recipe import Recipe as Recipe
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
        "hierarchies.hierarchy": "Hierarchy",
        "hierarchies.rules": "Interval",
        "recipe": "Recipe",
        "schema": "Column Kind Role Schema",
        "table": "Table read write",
    },
)
