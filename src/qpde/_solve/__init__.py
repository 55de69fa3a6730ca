"""`solve`: the stages of a run, one after the other."""
