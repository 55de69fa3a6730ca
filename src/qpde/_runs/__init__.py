"""Solutions as files, run folders, and runs described in words."""
