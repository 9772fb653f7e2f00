"""The JSON schema of the warm-prompts file, for editors. `validate` is the authority; this agrees with it."""

from __future__ import annotations

from typing import Any

from warmd.prompts.validate import MAX_NAME

_FREE_KEYS: dict[str, Any] = {"^x-": {}, r"^\$comment$": {}}
_KWARGS = {
    "type": "object",
    "description": "Arguments for the chat template, such as enable_thinking.",
}
_PRIORITY = {"type": "integer", "description": "Higher is warmed first; ties go by file order."}
_NAME = {
    "type": "string",
    "maxLength": MAX_NAME,
    "pattern": r"^[^#]",
    "allOf": [{"pattern": r"\S"}, {"not": {"pattern": "[\\u0000-\\u001f\\u007f-\\u009f]"}}],
}
_PART = {
    "type": "object",
    "required": ["type"],
    "properties": {"type": {"type": "string"}},
    "if": {"properties": {"type": {"const": "text"}}},
    "then": {"required": ["text"], "properties": {"text": {"type": "string"}}},
}
_TOOL_CALLS = {"type": "array", "items": {"type": "object"}, "minItems": 1}
_MESSAGE = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"type": "string", "minLength": 1},
        "content": {
            "anyOf": [{"type": ["string", "null"]}, {"type": "array", "items": {"$ref": "#/$defs/part"}}]
        },
        "content_file": {
            "type": "string",
            "minLength": 1,
            "description": "A UTF-8 file, relative to this one.",
        },
        "tool_calls": {"type": ["array", "null"], "items": {"type": "object"}},
    },
    "oneOf": [
        {"required": ["content_file"], "not": {"required": ["content"]}},
        {
            "required": ["content"],
            "properties": {"content": {"type": ["string", "array"]}},
            "not": {"required": ["content_file"]},
        },
        {
            "required": ["tool_calls"],
            "properties": {
                "role": {"const": "assistant"},
                "content": {"type": "null"},
                "tool_calls": _TOOL_CALLS,
            },
            "not": {"required": ["content_file"]},
        },
    ],
}
_MESSAGES = {"type": "array", "items": {"$ref": "#/$defs/message"}, "minItems": 1}
_ENTRY = {
    "type": "object",
    "required": ["messages"],
    "properties": {
        "name": {"$ref": "#/$defs/name"},
        "priority": {"$ref": "#/$defs/priority"},
        "model": {
            "type": "string",
            "pattern": "\\S",
            "description": "Only for this model: its name or folder, or the last part of it.",
        },
        "messages": {"$ref": "#/$defs/messages"},
        "tools": {
            "type": "array",
            "items": {"type": "object"},
            "description": "Exactly as the client sends them: the order of their keys decides the tokens.",
        },
        "tools_file": {
            "type": "string",
            "minLength": 1,
            "description": "A JSON file with the list of tools.",
        },
        "chat_template_kwargs": {"$ref": "#/$defs/kwargs"},
    },
    "not": {"required": ["tools", "tools_file"]},
    "patternProperties": _FREE_KEYS,
    "additionalProperties": False,
}
_PROMPTS = {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/messages"}, {"$ref": "#/$defs/entry"}]}}
_FILE = {
    "type": "object",
    "required": ["prompts"],
    "properties": {
        "$schema": {},
        "defaults": {
            "type": "object",
            "properties": {
                "chat_template_kwargs": {"$ref": "#/$defs/kwargs"},
                "priority": {"$ref": "#/$defs/priority"},
            },
            "patternProperties": _FREE_KEYS,
            "additionalProperties": False,
        },
        "prompts": {"$ref": "#/$defs/prompts"},
    },
    "patternProperties": _FREE_KEYS,
    "additionalProperties": False,
}

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "warmd prompts",
    "description": "The beginnings of requests that warmd keeps in the engine's prefix cache.",
    "anyOf": [{"$ref": "#/$defs/prompts"}, {"$ref": "#/$defs/file"}],
    "$defs": {
        "file": _FILE,
        "prompts": _PROMPTS,
        "entry": _ENTRY,
        "messages": _MESSAGES,
        "message": _MESSAGE,
        "part": _PART,
        "name": _NAME,
        "kwargs": _KWARGS,
        "priority": _PRIORITY,
    },
}
