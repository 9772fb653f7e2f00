"""Connects the chat templates of a tokenizer to a clock of ours.

transformers gives templates a function `strftime_now` as a global of the environment that it compiles each
one in, and it caches compiled templates by their source: the copy of a tokenizer that we render with would
share the compiled template with the tokenizer that serves. So ours gets a source that is equal to no other.
It is compiled a second time, and only that one asks our clock; nothing of transformers is replaced.
"""

from __future__ import annotations

import sys
from typing import Any

from warmd.clock import TemplateClock

SEAM = ("transformers.utils.chat_template_utils:_compile_jinja_template", ("chat_template",))
"""Returns a compiled template, the same one each time. In the form of `warmd.engines.mlx_lm.seams`."""

NAME = "strftime_now"


class _OwnSource(str):
    """A template's source that is equal to itself only."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class ConnectedTemplates:
    """The chat templates of a tokenizer, which ask a clock of ours.

    Args:
        tokenizer: One that serves nobody: its templates are changed. One whose templates transformers does
            not compile is left as it is, and the clock is not connected.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.clock = TemplateClock()
        self._sources: list[_OwnSource] = []
        own = self._own(getattr(tokenizer, "chat_template", None))
        if self._connect() and self._sources:
            tokenizer.chat_template = own
            self.clock.is_connected = True

    def renew(self) -> None:
        """Connect what transformers has compiled anew, as it does when it has seen many other templates."""
        if self.clock.is_connected:
            self._connect()

    def _own(self, template: Any) -> Any:
        if isinstance(template, dict):
            return {name: self._own(source) for name, source in template.items()}
        if not isinstance(template, str):
            return template
        source = _OwnSource(template)
        self._sources.append(source)
        return source

    def _connect(self) -> bool:
        # A host may have a tokenizer of another kind, and importing transformers takes seconds.
        if "transformers" not in sys.modules:
            return False
        try:
            return all(self._connect_one(source) for source in self._sources)
        # What a model ships need not be a template: whoever renders it is told what is wrong with it.
        except Exception:  # noqa: BLE001
            return False

    def _connect_one(self, source: _OwnSource) -> bool:
        from transformers.utils import chat_template_utils

        compiled = chat_template_utils._compile_jinja_template(source)
        ask = compiled.environment.globals.get(NAME)
        if ask is None:
            return False
        if NAME not in compiled.globals.maps[0]:
            clock = self.clock
            # A plain function: the template runs in a sandbox, and is to get hold of nothing else.
            compiled.globals[NAME] = lambda template_format: clock.answer(template_format, ask)
        return True
