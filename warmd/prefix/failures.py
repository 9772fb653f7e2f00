"""Foreign errors of a render, turned into one line that may be shown.

A template's or a tokenizer's message can quote the prompt, so it is shown only when nothing in it comes
from the entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from warmd.errors import RenderError, WarmdError
from warmd.prompts.document import Entry

_WINDOW = 8
_SHORTEST = 4
_LONGEST_MESSAGE = 300
# Words of the message format are in every entry and give nothing away.
_FORMAT = "role content name type text function tool_calls arguments parameters system user assistant tool "


def render_error(error: Exception, entry: Entry, template: str) -> RenderError:
    """Translate what a render raised; the message never holds text of the entry."""
    if isinstance(error, json.JSONDecodeError) and (place := _bad_arguments(entry)):
        return RenderError(f"{place}: arguments are not valid JSON")
    kind = type(error).__name__
    message = " ".join(str(error).split())[:_LONGEST_MESSAGE]
    if not message or _quotes(message, entry, template):
        return RenderError(f"the chat template or tokenizer raised {kind}")
    return RenderError(message if isinstance(error, WarmdError) else f"{kind}: {message}")


def _bad_arguments(entry: Entry) -> str | None:
    for index, message in enumerate(entry.messages):
        calls = message.get("tool_calls")
        for number, call in enumerate(calls if isinstance(calls, list) else []):
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and not _is_json(function.get("arguments")):
                return f"message {index}, tool call {number}"
    return None


def _is_json(arguments: object) -> bool:
    if not isinstance(arguments, str) or not arguments:
        return True
    try:
        json.loads(arguments)
    except ValueError:
        return False
    return True


def _quotes(message: str, entry: Entry, template: str) -> bool:
    shown, own = message.casefold(), _FORMAT + " ".join(template.split()).casefold()
    windows = {shown[at : at + _WINDOW] for at in range(max(1, len(shown) - _WINDOW + 1))}
    foreign = [window for window in windows if window not in own]
    for text in _texts([*entry.messages, *(entry.tools or ()), entry.chat_template_kwargs]):
        # An error may quote a value as Python or JSON writes it.
        for form in (text, ascii(text), json.dumps(text)):
            hidden = " ".join(form.split()).casefold()
            if any(window in hidden for window in foreign):
                return True
        if _SHORTEST <= len(text) < _WINDOW and text.casefold() in shown and text.casefold() not in own:
            return True
    return False


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
