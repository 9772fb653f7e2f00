"""Benchmarks: what is compared is compared in one run, in interleaved rounds: ``python -m tests.bench``."""
