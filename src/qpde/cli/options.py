"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

ProblemOption = Annotated[
    str, typer.Argument(help="A name of `qpde zoo`, or my_problem.py:problem.", show_default=False)
]
DimOption = Annotated[int | None, typer.Option(help="Dimension (zoo problems).")]
SettingsOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=NUMBER", help="A problem's setting.")
]
PresetOption = Annotated[str | None, typer.Option(help="Settings under a name: paper.")]
StepsOption = Annotated[int | None, typer.Option(help="Training steps.")]
BudgetOption = Annotated[
    float | None,
    typer.Option(
        help="Stop after this many seconds of training; 30 where neither rule nor steps are given."
    ),
]
SeedOption = Annotated[int, typer.Option(help="The same seed gives the same bits.")]
PrecisionOption = Annotated[str | None, typer.Option(help="float32 or float64.")]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace earlier results; those of a run are moved aside.")
]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Run the Python file that the run names, though not yours.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress bar, no summary.")]
RunOption = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
NoCacheOption = Annotated[
    bool, typer.Option("--no-cache", help="Neither read nor keep compiled programs.")
]
