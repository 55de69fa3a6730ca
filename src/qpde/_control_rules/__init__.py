"""Rules for control problems: policy iteration, actor and critic."""
