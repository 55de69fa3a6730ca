"""qpde: elliptic PDEs in any dimension by neural Q-learning."""

from . import activations as activations
from . import plot as plot
from . import presets as presets
from . import zoo as zoo
from ._cache import cache_compilations as cache_compilations
from ._domain import AbstractDomain as AbstractDomain
from ._domain import Box as Box
from ._domain import Interval as Interval
from ._feynman_kac import Estimate as Estimate
from ._feynman_kac import feynman_kac as feynman_kac
from ._field import AbstractField as AbstractField
from ._jet import Jet as Jet
from ._lift import lift as lift
from ._measure import AbstractMeasure as AbstractMeasure
from ._measure import Radial as Radial
from ._measure import Uniform as Uniform
from ._measure import Weighted as Weighted
from ._network import MLP as MLP
from ._network import Frozen as Frozen
from ._network import Shallow as Shallow
from ._problem import Problem as Problem
from ._round import Annulus as Annulus
from ._round import Ball as Ball
from ._round import Ellipsoid as Ellipsoid
from ._rule import AbstractRule as AbstractRule
from ._rule import DeepGalerkin as DeepGalerkin
from ._rule import Flow as Flow
from ._rule import Penalty as Penalty
from ._rule import QLearning as QLearning
from ._rule import Truncation as Truncation
from ._schedule import Cosine as Cosine
from ._schedule import Decay as Decay
from ._schedule import Linear as Linear
from ._solution import Score as Score
from ._solution import Solution as Solution
from ._status import Interrupted as Interrupted
from ._status import SolveError as SolveError
from ._status import Status as Status
from ._store import load as load
from ._store import save as save
from ._train import Keep as Keep
from ._train import Progress as Progress
from ._train import solve as solve

__version__ = "0.1.0"
