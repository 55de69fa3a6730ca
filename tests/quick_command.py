"""`python quick_command.py WORDS`: `qpde` without the verdict, which takes seconds to compile, and small."""

import os

import small_runs

import qpde
import qpde_command
from qpde._solve import stages

stages.verdict_of = lambda solution: qpde.Verdict(qpde.Word.ROUGHLY, "not looked at", ())
if os.environ.get("XLA_FLAGS"):  # as tests/conftest.py has it
    small_runs.install()

if __name__ == "__main__":
    qpde_command.main()
