"""Control: equations with a choice in them, and the choice."""
