"""Keeps the agent's processes alive and answering: a supervisor, and the beat by which it sees a hang."""
