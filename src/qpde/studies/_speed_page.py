"""The speed study as Markdown and as a figure."""

from typing import Any

# Name, description and target of each ratio; the target is None where a ratio is only reported.
_RATIOS = (
    ("authors_over_q_d20", "authors' way / our Q step, d=20", ">= 45"),
    ("deepxde_over_q_d20", "DeepXDE step / our Q step, d=20", ">= 80"),
    ("deepxde_over_dgm_d20", "DeepXDE step / our deep-Galerkin step, d=20", ">= 20"),
    ("dgm_over_q_d20", "our deep-Galerkin / our Q step, d=20", None),
    ("authors_dgm_over_q_d20", "authors' deep Galerkin / authors' Q step, d=20", None),
    ("authors_over_q_d1", "authors' way / our Q step, d=1", ">= 5"),
    ("limit_over_q_d20", "unavoidable work / our Q step, d=20", ">= 0.45"),
    ("hessian_over_q_d20", "trace(jax.hessian) / closed form in our Q step, d=20", None),
    ("d10000_over_d1000", "our Q step at d=10,000 / at d=1,000 (N=256, M=256)", "<= 12"),
    ("mlp_hessian_over_engine_d20", "trace(jax.hessian) / our engine, 2 x 256 MLP, d=20", ">= 5"),
    ("mlp_hessian_over_engine_d100", "the same, d=100", ">= 20"),
)


def markdown(result: dict[str, Any], words: dict[str, str]) -> str:
    """The page of a result; `words` describe the rows."""
    machine, versions = result["machine"], result["versions"]
    memory = result["memory_mb"]
    lines = [
        "# What a training step costs",
        "",
        f"Measured on {result['date']}: {machine['processor']}, {machine['cores']} cores, "
        f"{machine['system']} (load {machine['load']:g} before the start), Python "
        f"{machine['python']}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + ".",
        "",
        "Written by `qpde bench speed`; run it again with `make bench-speed`. The problem is "
        "`survival`: N sigmoid units, M fresh points a step, float32, Adam. All rows of a case are "
        f"timed in turn, {result['repeats']} rounds; a row shows the median (fastest to slowest) of a "
        "step, and apart from it the seconds until the first step was done (building and compiling). "
        "Ratios are medians over rounds of the ratio within a round.",
        "",
        "| ratio | | target | measured |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{name}` | {text} | {target or '-'} | {result['ratios'][name]:.3g} |"
        for name, text, target in _RATIOS
        if name in result["ratios"]
    ]
    lines += [
        "",
        f"Compiling a whole run of the paper's preset (d=20, growing batches): "
        f"{result['startup_seconds']:.1f} s (target 3). Memory of compiling and running a step with "
        "d=20, N=256, M=10,000 above the idle program: "
        + ("not measured." if memory is None else f"{memory:.0f} MB (target 300)."),
        "",
        "| case | N | M | row | ms a step | first step, s |",
        "|---|---|---|---|---|---|",
    ]
    for row in (*result["rows"], *result["scaling"]):
        lines.append(
            f"| d={row['dim']:,} | {row['width']} | {row['points']:,} | {words[row['row']]} | "
            f"{row['milliseconds']:.3g} ({row['fastest']:.3g} to {row['slowest']:.3g}) | "
            f"{row['first_seconds']:.1f} |"
        )
    deep = result["deep"]
    lines += ["", "Laplacians of a 2 x 256 tanh network at 500 points, ms:", ""]
    lines += ["| d | our engine | trace(jax.hessian) |", "|---|---|---|"]
    lines += [
        f"| {d} | {deep[f'engine_d{d}']:.3g} | {deep[f'hessian_d{d}']:.3g} |" for d in (20, 100)
    ]
    lines += [
        "",
        "Both are bound by products of matrices. For a point the engine carries a Jacobian through the "
        "second layer, d N^2 multiplications; `jax.hessian` (forward over reverse) takes 2 d N^2 and "
        "N d^2 more. We know of no exact Laplacian with fewer than d N^2, so that arithmetic bounds the "
        "ratio near 2, below both targets.",
    ]
    return "\n".join(lines) + "\n"


def draw(result: dict[str, Any], words: dict[str, str]) -> Any:
    """Bars for d = 20, and the cost of our step against the dimension."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9.6, 3.6), layout="constrained", width_ratios=(1.5, 1)
    )
    rows = sorted(
        (row for row in result["rows"] if row["case"] == "d20"), key=lambda row: row["milliseconds"]
    )
    names = [words[row["row"]] for row in rows]
    times = [row["milliseconds"] for row in rows]
    colours = ["#1f5fa8" if row["row"] in ("q", "dgm") else "#9aa5b1" for row in rows]
    bars = left.barh(names[::-1], times[::-1], color=colours[::-1], height=0.65)
    left.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
    left.set_xscale("log")
    left.set(xlabel="milliseconds a step (d = 20, N = 256, M = 6,000)")
    left.set_xlim(right=3 * max(times))
    right.loglog(
        [row["dim"] for row in result["scaling"]],
        [row["milliseconds"] for row in result["scaling"]],
        "o-",
        color="#1f5fa8",
        lw=1.5,
        ms=4,
    )
    right.set(xlabel="dimension", ylabel="ms a step (N = 256, M = 256)")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    return figure
