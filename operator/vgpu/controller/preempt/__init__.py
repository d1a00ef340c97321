"""Preemption in the shell: from watched plans and pods to the one step that is next, and its writes."""
