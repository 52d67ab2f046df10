"""Sweep protections over their parameters, on the same rows and against the same attackers, and choose one."""
