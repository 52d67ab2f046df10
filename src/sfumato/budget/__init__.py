"""What privacy costs: events and noise, the accountant, the mechanisms, the ledger, and private queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato._exports import lazy

if TYPE_CHECKING:
    from sfumato.budget.accounting.accountant import Spent as Spent
    from sfumato.budget.accounting.accountant import calibrate as calibrate
    from sfumato.budget.accounting.accountant import check_delta as check_delta
    from sfumato.budget.accounting.accountant import spent as spent
    from sfumato.budget.accounting.composition import group as group
    from sfumato.budget.accounting.composition import post_process as post_process
    from sfumato.budget.accounting.composition import replace_one as replace_one
    from sfumato.budget.accounting.private_selection import RandomStopping as RandomStopping
    from sfumato.budget.differential_privacy import DifferentialPrivacy as DifferentialPrivacy
    from sfumato.budget.events import ApproximateEvent as ApproximateEvent
    from sfumato.budget.events import BoundedRange as BoundedRange
    from sfumato.budget.events import Composed as Composed
    from sfumato.budget.events import DiscreteGaussian as DiscreteGaussian
    from sfumato.budget.events import DiscreteLaplace as DiscreteLaplace
    from sfumato.budget.events import Event as Event
    from sfumato.budget.events import Exponential as Exponential
    from sfumato.budget.events import FixedSampled as FixedSampled
    from sfumato.budget.events import Gaussian as Gaussian
    from sfumato.budget.events import Laplace as Laplace
    from sfumato.budget.events import NoiseEvent as NoiseEvent
    from sfumato.budget.events import NoiseShares as NoiseShares
    from sfumato.budget.events import Parallel as Parallel
    from sfumato.budget.events import PoissonSampled as PoissonSampled
    from sfumato.budget.events import PureEvent as PureEvent
    from sfumato.budget.events import RandomizedResponse as RandomizedResponse
    from sfumato.budget.events import Relation as Relation
    from sfumato.budget.events import Repeated as Repeated
    from sfumato.budget.events import Selected as Selected
    from sfumato.budget.events import Shuffled as Shuffled
    from sfumato.budget.ledger.ledger import Budget as Budget
    from sfumato.budget.ledger.ledger import Ledger as Ledger
    from sfumato.budget.ledger.ledger import Reservation as Reservation
    from sfumato.budget.mechanisms.additive import AddedNoise as AddedNoise
    from sfumato.budget.mechanisms.additive import Mechanism as Mechanism
    from sfumato.budget.mechanisms.randomized_response import CategoryResponse as CategoryResponse
    from sfumato.budget.mechanisms.randomized_response import CoinResponse as CoinResponse
    from sfumato.budget.mechanisms.randomized_response import Estimate as Estimate
    from sfumato.budget.mechanisms.randomized_response import LocalMechanism as LocalMechanism
    from sfumato.budget.mechanisms.randomized_response import NumberResponse as NumberResponse
    from sfumato.budget.mechanisms.randomized_response import UnaryResponse as UnaryResponse
    from sfumato.budget.mechanisms.selection import ExponentialMechanism as ExponentialMechanism
    from sfumato.budget.mechanisms.selection import Extreme as Extreme
    from sfumato.budget.mechanisms.selection import NoisyMax as NoisyMax
    from sfumato.budget.mechanisms.selection import Quantile as Quantile
    from sfumato.budget.mechanisms.selection import SparseVector as SparseVector
    from sfumato.budget.mechanisms.statistics import Answer as Answer
    from sfumato.budget.mechanisms.statistics import ContingencyTable as ContingencyTable
    from sfumato.budget.mechanisms.statistics import Count as Count
    from sfumato.budget.mechanisms.statistics import Histogram as Histogram
    from sfumato.budget.mechanisms.statistics import Mean as Mean
    from sfumato.budget.mechanisms.statistics import Sum as Sum
    from sfumato.budget.mechanisms.statistics import Variance as Variance
    from sfumato.budget.noise import Source as Source
    from sfumato.budget.people import BoughtRowsPerPerson as BoughtRowsPerPerson
    from sfumato.budget.people import MaxGroupsPerPerson as MaxGroupsPerPerson
    from sfumato.budget.people import MaxRowsPerPerson as MaxRowsPerPerson
    from sfumato.budget.people import codes_of_people as codes_of_people
    from sfumato.budget.query.answer import QueryAnswer as QueryAnswer
    from sfumato.budget.query.answer import Row as Row
    from sfumato.budget.query.discovery import CountRows as CountRows
    from sfumato.budget.query.discovery import FindBounds as FindBounds
    from sfumato.budget.query.discovery import FindRowsPerPerson as FindRowsPerPerson
    from sfumato.budget.query.discovery import SelectCategories as SelectCategories
    from sfumato.budget.query.preview import Preview as Preview
    from sfumato.budget.query.question import Question as Question
    from sfumato.budget.query.question import StatisticName as StatisticName

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "accounting.accountant": "Spent calibrate check_delta spent",
        "accounting.composition": "group post_process replace_one",
        "accounting.private_selection": "RandomStopping",
        "differential_privacy": "DifferentialPrivacy",
        "events": (
            "ApproximateEvent BoundedRange Composed DiscreteGaussian DiscreteLaplace Event Exponential FixedSampled "
            "Gaussian Laplace NoiseEvent NoiseShares Parallel PoissonSampled PureEvent RandomizedResponse Relation "
            "Repeated Selected Shuffled"
        ),
        "ledger.ledger": "Budget Ledger Reservation",
        "mechanisms.randomized_response": (
            "CategoryResponse CoinResponse Estimate LocalMechanism NumberResponse UnaryResponse"
        ),
        "mechanisms.additive": "AddedNoise Mechanism",
        "mechanisms.selection": "ExponentialMechanism Extreme NoisyMax Quantile SparseVector",
        "mechanisms.statistics": "Answer ContingencyTable Count Histogram Mean Sum Variance",
        "noise": "Source",
        "people": "BoughtRowsPerPerson MaxGroupsPerPerson MaxRowsPerPerson codes_of_people",
        "query.discovery": "CountRows FindBounds FindRowsPerPerson SelectCategories",
        "query.preview": "Preview",
        "query.answer": "QueryAnswer Row",
        "query.question": "Question StatisticName",
    },
)
