"""Reads the log file for `warmd logs`: its lines through all rotations, and what they look like to people."""
