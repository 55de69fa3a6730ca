"""Networks: descriptions, and the fields that they build."""
