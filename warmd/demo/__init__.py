"""A small model, sample prompts and a request to try them with, all without a download.

The weights come from a package that carries them for another program; see `model`.
"""

from warmd.demo.model import DemoMissingError, DemoModelError, ensure_demo_model
from warmd.demo.prompts import demo_request, ensure_demo_prompts, welcome

__all__ = [
    "DemoMissingError",
    "DemoModelError",
    "demo_request",
    "ensure_demo_model",
    "ensure_demo_prompts",
    "welcome",
]
