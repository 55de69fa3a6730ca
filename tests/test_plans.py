"""A run is planned in one place, and once."""

import pytest
from typer.testing import CliRunner

from qpde import GaussNewton, QLearning, zoo
from qpde._solve.solve import plan_solve
from qpde._train.plan import Plan
from qpde.cli.main import app
from qpde.studies._jobs import Job


def test_the_command_plans_a_run_once(monkeypatch):
    made, check = [], Plan.__post_init__

    def counted(self):
        made.append(self)
        check(self)

    monkeypatch.setattr(Plan, "__post_init__", counted)
    words = ["solve", "survival", "--dim", "1", "--steps", "3", "--quiet"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert [plan.steps for plan in made] == [3]


@pytest.mark.parametrize("rule", [QLearning(), GaussNewton()], ids=lambda rule: rule.name)
def test_a_job_has_the_plan_that_solve_makes(rule):
    problem = zoo.survival(2)
    job = Job("one", problem, {"rule": rule, "seed": 3})
    (plan,) = plan_solve(problem, rule=rule, seed=3)
    assert job.plan.identity() == plan.identity()
    assert job.plan.precision == ("float64" if isinstance(rule, GaussNewton) else "float32")


def test_a_job_needs_one_rule():
    with pytest.raises(ValueError, match="The job stages needs one rule; give rule= or steps="):
        _ = Job("stages", zoo.survival(2), {"seed": 0}).plan
