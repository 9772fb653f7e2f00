"""Keeps the prompt prefixes of LLM agents warm in an MLX engine's KV cache."""

__version__ = "0.1.0"
