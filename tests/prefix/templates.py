"""Toy chat templates, one per way in which real ones treat the beginning of a prompt."""

from __future__ import annotations

from tests.toys import CHATML

LLAMA3 = (
    "{{- '<s>' }}{%- for m in messages %}"
    "{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
)

# The system text becomes the beginning of the first user turn.
GEMMA = (
    "{{- '<s>' }}{%- if messages[0].role == 'system' %}{%- set first = messages[0].content + '\\n\\n' %}"
    "{%- set rest = messages[1:] %}{%- else %}{%- set first = '' %}{%- set rest = messages %}{%- endif %}"
    "{%- for m in rest %}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{%- endif %}{%- set role = 'model' if m.role == 'assistant' else m.role %}"
    "{{- '<start_of_turn>' + role + '\\n' + (first if loop.first else '') + m.content + '<end_of_turn>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}"
)

# The system text stands before the last user message, wherever that is.
MISTRAL = (
    "{{- '<s>' }}{%- set system = '' %}{%- if messages[0].role == 'system' %}"
    "{%- set system = messages[0].content + '\\n\\n' %}{%- endif %}"
    "{%- for m in messages %}{%- if m.role == 'user' %}"
    "{{- '[INST] ' + (system if loop.last else '') + m.content + ' [/INST]' }}"
    "{%- elif m.role == 'assistant' %}{{- ' ' + m.content + '</s>' }}{%- endif %}{%- endfor %}"
)

TRIMMING = (
    "{%- for m in messages %}{{- m.role | upper + ': ' + m.content | trim + '\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- 'ASSISTANT:' }}{%- endif %}"
)

# Markers are plain text, and the user text follows a space.
VICUNA = (
    "{%- for m in messages %}{%- if m.role == 'system' %}{{- m.content + '\\n\\n' }}"
    "{%- else %}{{- m.role | upper + ': ' + m.content + '\\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- 'ASSISTANT:' }}{%- endif %}"
)

# Nothing separates the system text from the user text.
GLUED = (
    "{%- for m in messages %}{{- m.content }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '>' }}{%- endif %}"
)

NEEDS_USER = (
    "{%- set found = namespace(user=false) %}{%- for m in messages %}{%- if m.role == 'user' %}"
    "{%- set found.user = true %}{%- endif %}{%- endfor %}"
    "{%- if not found.user %}{{- raise_exception('No user query found in messages.') }}{%- endif %}" + CHATML
)

DEFAULT_SYSTEM = (
    "{%- if messages[0].role != 'system' %}"
    "{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{%- endif %}" + CHATML
)

DATED = "{{- 'Today Date: ' + strftime_now('%d %b %Y') + '\\n\\n' }}" + CHATML

IGNORES_SYSTEM = (
    "{{- '<s>You are a helpful assistant.\\n' }}{%- for m in messages if m.role != 'system' %}"
    "{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

REFUSES_SYSTEM = (
    "{%- if messages[0].role == 'system' %}{{- raise_exception('System role not supported') }}{%- endif %}"
    + CHATML
)

# Earlier answers keep their reasoning unless they precede the last real question; a user text that is a
# tool's response is no question.
QWEN3 = (
    "{%- set ns = namespace(last=messages|length - 1, looking=true) %}"
    "{%- for m in messages[::-1] %}{%- set i = messages|length - 1 - loop.index0 %}"
    "{%- if ns.looking and m.role == 'user' and not (m.content.startswith('<tool_response>')"
    " and m.content.endswith('</tool_response>')) %}"
    "{%- set ns.looking = false %}{%- set ns.last = i %}{%- endif %}{%- endfor %}"
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.role == 'assistant' and '</think>' in m.content and loop.index0 < ns.last %}"
    "{{- m.content.split('</think>')[-1].lstrip('\\n') }}{%- else %}{{- m.content }}{%- endif %}"
    "{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}"
    "{%- endif %}{%- endif %}"
)

THINKING = "{%- if enable_thinking %}{{- '<think-on>' }}{%- else %}{{- '<think-off>' }}{%- endif %}" + CHATML

TEMPLATES = {
    "chatml": CHATML,
    "llama3": LLAMA3,
    "gemma": GEMMA,
    "mistral": MISTRAL,
    "trimming": TRIMMING,
    "vicuna": VICUNA,
    "glued": GLUED,
    "needs_user": NEEDS_USER,
    "default_system": DEFAULT_SYSTEM,
    "dated": DATED,
    "qwen3": QWEN3,
}
"""The templates with which an entry that has a system text can be warmed."""
