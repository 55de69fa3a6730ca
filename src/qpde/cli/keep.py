"""The commands that look after runs: `check` and `repeat`."""

import json

from .ends import DIFFERENT, fail
from .options import JsonOption, QuietOption, RunOption, TrustOption


def check(run: RunOption, as_json: JsonOption = False) -> None:
    """Tell which files of a run are intact.

    Every file is compared with its digest, and with the id of the run. Nothing is changed, no code is run.
    Exit code 1 where something is damaged or missing.

    \b
    Example:
      qpde check runs/mine
    """
    from .._runs.check import check_run

    found = check_run(run)
    if as_json:
        print(json.dumps({one.name: {"intact": one.intact, "text": one.words} for one in found}))
    else:
        print("\n".join(map(str, found)))
    wrong = [one.name for one in found if not one.intact]
    if wrong:
        fail(f"{run} is not intact: {', '.join(wrong)}.", DIFFERENT)


def repeat(
    run: RunOption,
    trust: TrustOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Do a run again and compare the bits.

    Every stage does as many steps as it did before, also where the clock or Ctrl-C ended it. The folder stays
    as it is. Exit code 1 where a bit differs, as it may on another machine or with other versions.

    \b
    Example:
      qpde repeat runs/mine
    """
    from .._runs.record import RUN, read_record
    from .._runs.repeat import differences
    from .._runs.repeat import repeat as run_again
    from .._runs.store import admit_spec, load
    from .._solve.solve import plan_solve

    record = read_record(run)
    admit_spec(record.spec, run / RUN, record.run_id, record.source, trust=trust)
    before = load(run, trust=trust)
    problem = record.spec.build_problem()
    plans = plan_solve(problem, **record.spec.build_options(problem))
    gaps = differences(before, run_again(plans, before, progress=not quiet))
    if as_json:
        print(json.dumps({"run": str(run), "steps": before.steps, "different": gaps}))
    elif not quiet and not gaps:
        print(f"The same bits after {before.steps:,} steps.")
    if gaps:
        fail(f"other bits than in {run}: {', '.join(gaps)}.", DIFFERENT)
