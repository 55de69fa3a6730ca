"""Problems with known answers.

`CATALOGUE` lists them in words; `TARGETS` holds what others have published about those taken from the
literature, and what is to be reached. These are twelve families: the three equations `two_body_*` share one
solution and count as one, each other problem of `TARGETS` is one; beside them stand five in time.
"""

from collections.abc import Callable
from typing import NamedTuple

from .._problem.problem import Problem
from ._boxes import cube_cosines as cube_cosines
from ._boxes import cube_norm as cube_norm
from ._boxes import cube_products as cube_products
from ._boxes import mean_ridge as mean_ridge
from ._boxes import poisson_sine as poisson_sine
from ._control import control_bell as control_bell
from ._control import control_sines as control_sines
from ._control import steered_bumps as steered_bumps
from ._control import van_der_pol as van_der_pol
from ._evolution import absorbed_heat as absorbed_heat
from ._evolution import heat_ball as heat_ball
from ._linear import annulus as annulus
from ._linear import committor as committor
from ._linear import drift as drift
from ._linear import ellipsoid as ellipsoid
from ._linear import survival as survival
from ._plates import clamped_load as clamped_load
from ._plates import clamped_waves as clamped_waves
from ._plates import supported_plate as supported_plate
from ._quadratic import eikonal as eikonal
from ._quadratic import lqr as lqr
from ._quadratic import lqr_diffusion as lqr_diffusion
from ._quadratic import lqr_matrices as lqr_matrices
from ._quadratic import rotated as rotated
from ._semilinear import exponential_ball as exponential_ball
from ._semilinear import semilinear as semilinear
from ._semilinear import two_body_allen_cahn as two_body_allen_cahn
from ._semilinear import two_body_poisson as two_body_poisson
from ._semilinear import two_body_sine_gordon as two_body_sine_gordon
from ._space import VALUES as VALUES
from ._space import allen_cahn_in_time as allen_cahn_in_time
from ._space import hjb_chain as hjb_chain
from ._space import hjb_quadratic as hjb_quadratic
from ._space import semilinear_heat as semilinear_heat
from ._space import sine_gordon_in_time as sine_gordon_in_time
from ._stopping import MAX_CALL as MAX_CALL
from ._stopping import american_put as american_put
from ._stopping import bermudan_max_call as bermudan_max_call
from ._stopping import put_in_time as put_in_time
from ._targets import AT_START as AT_START
from ._targets import TARGETS as TARGETS
from ._targets import Target as Target


class Entry(NamedTuple):
    """A problem of the zoo in words."""

    build: Callable[..., Problem]
    dims: str
    equation: str
    domain: str


CATALOGUE: dict[str, Entry] = {
    "survival": Entry(survival, ">= 1", "1 - discount u + 1/2 Lap u = 0, u = 0", "the unit ball"),
    "poisson_sine": Entry(
        poisson_sine, ">= 1", "Lap u + d pi^2 prod sin(pi x_i) = 0, u = 0", "(0, 1)^d"
    ),
    "ellipsoid": Entry(
        ellipsoid, ">= 1", "Lap u - u + r(x) = 0, u = 0", "an ellipsoid with semi-axes 1/2 to 2"
    ),
    "annulus": Entry(annulus, ">= 2", "Lap u = 0, u = 0 and (1 - 2^-d) x_1", "1 < |x| < 2"),
    "committor": Entry(committor, ">= 2", "Lap u = 0, u = 0 and 1", "1 < |x| < 2"),
    "drift": Entry(
        drift,
        ">= 1",
        "1/2 Lap u - x . grad u - u/2 + r(x) = 0, u = 0",
        "a unit ball off the origin",
    ),
    "cube_cosines": Entry(
        cube_cosines, ">= 1", "Lap u + pi^2 sum cos(pi x_i) = 0, u = sum cos(pi x_i)", "(0, 1)^d"
    ),
    "cube_products": Entry(
        cube_products, "even >= 2", "Lap u = 0, u = x_1 x_2 + x_3 x_4 + ...", "(0, 1)^d"
    ),
    "cube_norm": Entry(cube_norm, ">= 1", "Lap u - 2 d = 0, u = |x|^2", "(0, 1)^d"),
    "mean_ridge": Entry(
        mean_ridge, ">= 1", "Lap u - (2 - sin m)/d = 0, u = m^2 + sin m, m = mean x", "(-1, 1)^d"
    ),
    "semilinear": Entry(
        semilinear, ">= 1", "Lap u - u^3 + r(x) = 0, u = 1 + sin(k . x)/2", "the unit ball"
    ),
    "two_body_poisson": Entry(two_body_poisson, ">= 2", "Lap u - r(x) = 0, u = 0", "the unit ball"),
    "two_body_allen_cahn": Entry(
        two_body_allen_cahn, ">= 2", "Lap u + u - u^3 - r(x) = 0, u = 0", "the unit ball"
    ),
    "two_body_sine_gordon": Entry(
        two_body_sine_gordon, ">= 2", "Lap u + sin u - r(x) = 0, u = 0", "the unit ball"
    ),
    "exponential_ball": Entry(
        exponential_ball,
        ">= 1",
        "Lap u - 2u (2|x|^2 + d) + sin(exp(2|x|^2) - u^2) = 0, u = e",
        "the unit ball",
    ),
    "van_der_pol": Entry(
        van_der_pol,
        "even >= 4",
        "Lap u + b . grad u - |grad_z u|^2 / (4 effort) - discount u + w(x) = 0",
        "the unit ball",
    ),
    "control_bell": Entry(
        control_bell,
        ">= 1",
        "1/2 Lap(u - v) - (u - v) + sum(x_i p_i - max(|p_i| - 1, 0)^2 / 4) = 0, u = 1/e",
        "the unit ball",
    ),
    "control_sines": Entry(
        control_sines, ">= 3", "1/2 Lap(u - v) - (u - v) + b p - p^2 / 4 = 0, u = 1", "(-1, 1)^d"
    ),
    "lqr": Entry(
        lqr,
        ">= 1",
        "Lap u + min_a (a . grad u + |x|^2 + |a|^2) - 2 d k - u = 0, u = k",
        "the unit ball",
    ),
    "lqr_matrices": Entry(
        lqr_matrices,
        ">= 1",
        "1/2 s s' : Hess u + min_a ((A x + B a) . grad u + x' P x + a' R a) - u = 0, u = x' K x + c",
        "the unit ball",
    ),
    "lqr_diffusion": Entry(
        lqr_diffusion,
        ">= 1",
        "1/2 Lap u + min_a sum(a_i u_i + a_i^2 u_ii / 2 + p_i x_i^2 + a_i^2) - u = 0, u = sum k_i x_i^2 + c",
        "the unit ball",
    ),
    "eikonal": Entry(eikonal, ">= 1", "Lap u - |grad u| + w(x) = 0, u = -1", "the unit ball"),
    "steered_bumps": Entry(
        steered_bumps,
        ">= 1",
        "u_t + sum u_i + n^2 Lap u - n^2 |grad u|^2 = 0, u = mean h(x_i - 1) at t = 1",
        "the whole space, 0 <= t < 1",
    ),
    "rotated": Entry(
        rotated, ">= 1", "min over three a of [A_a : Hess u + l_a(x)] = 0, u = 0", "(0, 1)^d"
    ),
    "clamped_load": Entry(clamped_load, ">= 1", "1 - Lap^2 u = 0, u = du/dn = 0", "the unit ball"),
    "clamped_waves": Entry(
        clamped_waves, ">= 2", "r(x) - Lap^2 u = 0, u = du/dn = 0", "the unit ball"
    ),
    "supported_plate": Entry(
        supported_plate, "1 to 8", "r(x) - Lap^2 u = 0, u = Lap u = 0", "(0, 1)^d"
    ),
    "heat_ball": Entry(
        heat_ball, ">= 1", "Lap u - u_t + r(x, t) = 0, u = 0", "the unit ball, 0 < t <= 1"
    ),
    "absorbed_heat": Entry(
        absorbed_heat,
        ">= 1",
        "1/2 Lap u - u_t = 0, u = 0, u = 1 at t = 0",
        "the unit ball, 0 < t <= 0.1",
    ),
    "allen_cahn_in_time": Entry(
        allen_cahn_in_time,
        ">= 1",
        "u_t + Lap u + u - u^3 = 0, u = 1/(2 + 0.4 |x|^2) at t = 0.3",
        "the whole space, 0 <= t < 0.3",
    ),
    "semilinear_heat": Entry(
        semilinear_heat,
        ">= 1",
        "u_t + Lap u + (1 - u^2)/(1 + u^2) = 0, u = 1/(2 + 0.4 |x|^2) at t = 0.3",
        "the whole space, 0 <= t < 0.3",
    ),
    "sine_gordon_in_time": Entry(
        sine_gordon_in_time,
        ">= 1",
        "u_t + Lap u + sin u = 0, u = 1/(2 + 0.4 |x|^2) at t = 0.3",
        "the whole space, 0 <= t < 0.3",
    ),
    "hjb_quadratic": Entry(
        hjb_quadratic,
        ">= 1",
        "u_t + Lap u - weight |grad u|^2 = 0, u = log((1 + |x|^2)/2) at t = 1",
        "the whole space, 0 <= t < 1",
    ),
    "hjb_chain": Entry(
        hjb_chain,
        ">= 2",
        "u_t + Lap u - |grad u|^2 = 0, u = log((1 + x' M x)/2) at t = 1",
        "the whole space, 0 <= t < 1",
    ),
    "american_put": Entry(
        american_put, "1", "max(generator u - rate u, (strike - x)^+ - u) = 0", "(0, 1)"
    ),
}
