"""Attacks on what has landed: threads, kills, writers."""
