"""Files in one piece, tables, compiled programs on disk, and fingerprints of problems."""
