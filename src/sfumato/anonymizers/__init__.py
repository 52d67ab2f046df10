"""Put records into groups that keep the guarantees asked for, and publish each group as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.anonymizers.base import Anonymizer as Anonymizer
    from sfumato.anonymizers.base import Partitioner as Partitioner
    from sfumato.anonymizers.guided.guidance import Task as Task
    from sfumato.anonymizers.guided.guided import Criterion as Criterion
    from sfumato.anonymizers.guided.guided import CutBy as CutBy
    from sfumato.anonymizers.guided.guided import Guided as Guided
    from sfumato.anonymizers.guided.model import AnonymizedModel as AnonymizedModel
    from sfumato.anonymizers.guided.model import Guide as Guide
    from sfumato.anonymizers.guided.model import Select as Select
    from sfumato.anonymizers.guided.model import Trial as Trial
    from sfumato.anonymizers.hilbert.hilbert import Hilbert as Hilbert
    from sfumato.anonymizers.lattice.lattice import Lattice as Lattice
    from sfumato.anonymizers.lattice.search import Objective as Objective
    from sfumato.anonymizers.lattice.walk import LatticeMap as LatticeMap
    from sfumato.anonymizers.lattice.walk import LatticeNode as LatticeNode
    from sfumato.anonymizers.local_suppression import LocalSuppression as LocalSuppression
    from sfumato.anonymizers.microaggregation.microaggregate import Microaggregate as Microaggregate
    from sfumato.anonymizers.mondrian.mondrian import Mondrian as Mondrian
    from sfumato.anonymizers.mondrian.mondrian import RPlus as RPlus
    from sfumato.anonymizers.publish import Output as Output

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "base": "Anonymizer Partitioner",
        "guided.guidance": "Task",
        "guided.guided": "Criterion CutBy Guided",
        "guided.model": "AnonymizedModel Guide Select Trial",
        "hilbert.hilbert": "Hilbert",
        "lattice.lattice": "Lattice",
        "lattice.search": "Objective",
        "lattice.walk": "LatticeMap LatticeNode",
        "microaggregation.microaggregate": "Microaggregate",
        "mondrian.mondrian": "Mondrian RPlus",
        "publish": "Output",
        "local_suppression": "LocalSuppression",
    },
)
