"""What others have published about problems of the zoo, and what is to be reached."""

from typing import NamedTuple


class Target(NamedTuple):
    """A number to reach, beside the best one published.

    - `problem`, `dim`: a name of the catalogue and a dimension.
    - `family`: equal for problems that share a solution.
    - `target`: the error to reach, in the metric below.
    - `published`: the best published error, or None where there are only figures.
    - `metric`: relative L2 over uniform points of the domain unless it says otherwise.
    - `hardware`: the machine, and the seconds that the published run took, where known.
    - `within`: the target is to be reached in so many seconds, or None.
    - `source`: who published it.
    - `note`: what to know before comparing.
    """

    problem: str
    dim: int
    family: str
    target: float
    published: float | None
    source: str
    metric: str = "relative L2"
    hardware: str = "not stated"
    within: float | None = None
    note: str = ""


_LEARNING = "Cohen, Jiang, Sirignano, JMLR 24 (2023)"
_NATURAL = "energy natural gradient descent, papers named in cube_cosines"
_ACTOR = "Cohen, Hebner, Jiang, Sirignano (2025)"
_RERUN = "not published: the paper's settings, run again"

_BSDE = "E, Han, Jentzen (2017)"
_STDE = "Shi, Hu, Lin, Kawaguchi, NeurIPS 2024"
_UNCONFIRMED = "the published number is not confirmed"
_SMALLEST = (
    "the smallest error seen in training, against a reference that is off in the fourth digit"
)
# The metric of problems in the whole space, whose solution is known at one point.
AT_START = "relative error of the value at the start"

TARGETS: tuple[Target, ...] = (
    *(
        Target("survival", dim, "survival", target, published, _LEARNING, note=note)
        for dim, target, published, note in (
            (1, 1e-5, None, ""),
            (2, 1e-5, None, ""),
            (10, 1e-5, None, ""),
            (20, 1e-5, 7.9e-4, _RERUN),
            (100, 3e-6, None, ""),
        )
    ),
    *(
        Target(
            f"two_body_{equation}",
            dim,
            "two_body",
            target,
            published,
            "Shi, Hu, Lin, Kawaguchi, NeurIPS 2024",
            metric="relative L2, radius uniform in (0, 1)",
            hardware="A100, 5 to 36 s",
            note="one number a dimension for three equations; the target: below an affine network",
        )
        for equation in ("poisson", "allen_cahn", "sine_gordon")
        for dim, target, published in (
            (100, 1e-3, 3.5e-3),
            (1_000, 1e-4, 4.9e-4),
            (10_000, 1e-5, 5.5e-4),
            (100_000, 7e-6, 9.6e-4),
        )
    ),
    Target("cube_cosines", 5, "cube_cosines", 3e-8, 3.5e-8, _NATURAL, hardware="RTX 6000, 3000 s"),
    Target(
        "cube_cosines",
        5,
        "cube_cosines",
        1e-5,
        None,
        _NATURAL,
        within=220.0,
        note="instead of the smaller target",
    ),
    Target(
        "cube_products",
        10,
        "cube_products",
        1e-5,
        1.2e-5,
        "best of the papers named in cube_products",
        hardware="6249 s",
        note="which of them is not recorded",
    ),
    Target(
        "cube_norm",
        100,
        "cube_norm",
        1e-4,
        3.57e-3,
        "SPRING (Guzman-Cordero, Dangel, Goldshlager, Zeinhofer, 2025)",
        hardware="7000 s",
    ),
    Target("mean_ridge", 100, "mean_ridge", 1e-4, 7.2e-3, "PDENNEval, 2024", hardware="6906 s"),
    Target(
        "exponential_ball",
        50,
        "exponential_ball",
        1e-4,
        2.0e-3,
        "Nuesken, Richter (2023)",
        note="to about two digits",
    ),
    Target("van_der_pol", 20, "van_der_pol", 1e-3, None, "Zhou, Han, Lu, SISC 43 (2021)"),
    Target("control_bell", 10, "control_bell", 1e-3, 2.0e-2, _ACTOR, note="from the MSE 8e-5"),
    Target(
        "control_sines",
        10,
        "control_sines",
        1e-2,
        9e-2,
        _ACTOR,
        note="from the MSE 8e-3, about that of the constant 1",
    ),
    Target("american_put", 1, "american_put", 1e-4, None, _LEARNING, metric="largest error"),
    Target(
        "american_put",
        1,
        "american_put",
        1e-3,
        None,
        _LEARNING,
        metric="error of the free boundary",
    ),
    Target(
        "committor",
        10,
        "committor",
        3e-4,
        6.6e-4,
        "Nam, Berner, Anandkumar, ICML 2024",
        note="the published number is not confirmed",
    ),
    Target("heat_ball", 10, "heat_ball", 1e-5, None, "none: a problem of this library"),
    *(
        Target(
            problem,
            dim,
            problem,
            target,
            published,
            source,
            metric=AT_START,
            hardware=machine,
            note=note,
        )
        for problem, dim, target, published, source, machine, note in (
            ("allen_cahn_in_time", 10, 1e-5, None, _BSDE, "not stated", ""),
            ("allen_cahn_in_time", 100, 1e-6, 3.0e-3, _BSDE, "a laptop, 647 s", _UNCONFIRMED),
            ("hjb_quadratic", 100, 1e-5, 1.7e-3, _BSDE, "a laptop, 330 s", _UNCONFIRMED),
            ("semilinear_heat", 10, 1e-5, 7.0e-5, _STDE, "A100", _SMALLEST),
            ("sine_gordon_in_time", 10, 1e-5, 4.2e-5, _STDE, "A100", _SMALLEST),
        )
    ),
)
