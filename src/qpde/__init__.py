"""qpde: elliptic PDEs in any dimension by neural Q-learning."""

from . import activations, plot, presets, zoo
from ._boundary.conditions import Clamped, SimplySupported
from ._boundary.lift import lift
from ._control.actions import BoxActions, FiniteActions, FreeActions
from ._control.base import AbstractControl
from ._control.control import Control
from ._control_rules.actor_critic import ActorCritic
from ._control_rules.policy_iteration import PolicyIteration
from ._domain.base import AbstractDomain
from ._domain.box import Box, Interval
from ._domain.cylinder import Cylinder
from ._domain.round import Annulus, Ball, Ellipsoid
from ._domain.space import Space
from ._field.base import AbstractField, as_field
from ._field.form import AbstractForm, Factor, Identity, Matrix
from ._field.jet import Jet
from ._field.radial import OfSquare
from ._files.cache import cache_compilations
from ._files.damage import DamagedFile
from ._files.lock import Locked
from ._limit.kernel import TangentKernel, finite_kernel
from ._limit.solve import Limit, LimitSolution, solve_limit
from ._machines.place import distributed
from ._monotone.cordes import Cordes, cordes
from ._monotone.laws import suggest_measure
from ._monotone.monotonicity import Ground, Monotonicity, monotonicity
from ._network.base import AbstractNetwork, Frozen, trainable
from ._network.distance import Distance
from ._network.mlp import MLP
from ._network.pairs import Pairs
from ._network.ridge import Ridge
from ._network.separable import Separable
from ._network.shallow import Shallow
from ._problem.accuracy import Accuracy
from ._problem.measure import AbstractMeasure, Radial, Uniform, Weighted
from ._problem.problem import Problem
from ._problem.score import Score
from ._problem.solution import History, Solution, Stage
from ._problem.trial import Trial
from ._problem.verdict import Reason, Verdict, Word
from ._rule.base import AbstractRule, Info
from ._rule.batch import Batch, Draw
from ._rule.deviations import LeastDeviations
from ._rule.first_order import DeepGalerkin, Flow, Penalty, QLearning, Truncation
from ._rule.gauss_newton import GaussNewton
from ._rule.implicit import ImplicitQLearning
from ._rule.projection import VariableProjection
from ._rule.schedule import AbstractSchedule, Clock, Cosine, Decay, Ramp
from ._runs.store import load, save
from ._runs.trust import Untrusted
from ._solve.carried import certify_windows
from ._solve.solve import solve
from ._solve.verdict import judge
from ._solve.windows import Windowed, solve_windows
from ._status import Interrupted, SolveError, Status
from ._stopping.backward import solve_stopping
from ._stopping.bracket import Bracket, bracket
from ._stopping.motion import Gaussian, LogNormal
from ._stopping.problem import Stopping
from ._stopping.solution import StoppingSolution
from ._train.plan import Keep, Progress
from ._train.polish import polish
from ._trust.certificate import Certificate, Kind, Norm
from ._trust.certify import certify
from ._trust.explain import Explanation, explain
from ._trust.finding import Answer, Evidence, Finding
from ._walks.estimate import Estimate
from ._walks.feynman_kac import feynman_kac
from ._walks.simulate import Simulation, simulate

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022 - by topic
    # what one writes and solves
    "Problem",
    "Jet",
    "solve",
    "solve_windows",
    "Windowed",
    "polish",
    "solve_limit",
    "Solution",
    "LimitSolution",
    "Limit",
    "History",
    "Stage",
    "Score",
    "judge",
    "Verdict",
    "Word",
    "Reason",
    "Accuracy",
    "Status",
    "Progress",
    "Keep",
    "SolveError",
    "Interrupted",
    "lift",
    "Clamped",
    "SimplySupported",
    "load",
    "save",
    "DamagedFile",
    "Untrusted",
    "Locked",
    "plot",
    "presets",
    "zoo",
    "cache_compilations",
    "distributed",
    # control
    "Control",
    "FreeActions",
    "FiniteActions",
    "BoxActions",
    "simulate",
    "Simulation",
    # stopping
    "Stopping",
    "LogNormal",
    "Gaussian",
    "solve_stopping",
    "StoppingSolution",
    "bracket",
    "Bracket",
    # domains and laws of points
    "Interval",
    "Box",
    "Ball",
    "Ellipsoid",
    "Annulus",
    "Cylinder",
    "Space",
    "Uniform",
    "Radial",
    "Weighted",
    "suggest_measure",
    # networks
    "Shallow",
    "MLP",
    "Distance",
    "Pairs",
    "Ridge",
    "Separable",
    "Frozen",
    "activations",
    # rules and schedules
    "QLearning",
    "DeepGalerkin",
    "Penalty",
    "GaussNewton",
    "ImplicitQLearning",
    "VariableProjection",
    "LeastDeviations",
    "PolicyIteration",
    "ActorCritic",
    "Flow",
    "Truncation",
    "Ramp",
    "Decay",
    "Cosine",
    # trust
    "certify",
    "certify_windows",
    "Certificate",
    "Kind",
    "Norm",
    "monotonicity",
    "Monotonicity",
    "Ground",
    "cordes",
    "Cordes",
    "feynman_kac",
    "Estimate",
    "explain",
    "Explanation",
    "Finding",
    "Evidence",
    "Answer",
    "TangentKernel",
    "finite_kernel",
    # for domains, fields, laws, networks, rules and schedules of one's own
    "AbstractDomain",
    "AbstractField",
    "OfSquare",
    "as_field",
    "AbstractForm",
    "Identity",
    "Factor",
    "Matrix",
    "AbstractControl",
    "AbstractMeasure",
    "AbstractNetwork",
    "trainable",
    "AbstractRule",
    "Trial",
    "Info",
    "Draw",
    "Batch",
    "AbstractSchedule",
    "Clock",
]
