"""One server with an OpenAI-compatible interface, as far as warming needs it.

Whatever goes wrong becomes one of two errors whose message is a line without any prompt text: an answer may
quote the request, so nothing of an answer that is not as expected is passed on but its status.
"""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import anyio
import httpx2

from warmd.errors import WarmdError

CONNECT_SECONDS = 10.0
LIST_SECONDS = 30.0
"""What a server may take to list its models: some do little else while they prefill."""
MOST_BYTES = 32 << 20
"""No answer of one token, and no list of models, comes near to that."""
LONGEST_NAME = 500
"""Characters of a model's name; more are none."""

HINTS = {401: " (is the API key right?)", 403: " (is the API key right?)", 404: " (is the path right?)"}
HINTS |= dict.fromkeys(
    (301, 302, 303, 307, 308), " (it redirects, which is not followed: name the address itself)"
)


class UnreachableError(WarmdError):
    """The server cannot be talked to."""


class AnswerError(WarmdError):
    """The server answered, but not with what was asked for.

    Args:
        status: Of HTTP.
    """

    def __init__(self, status: int) -> None:
        found = f"{status}{HINTS.get(status, '')}" if status != 200 else "with something that cannot be read"
        super().__init__(f"the server answered {found}")
        self.status = status

    @property
    def is_refusal(self) -> bool:
        """True when it is about who asks, not about what."""
        return self.status in (401, 403)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a server says of a prompt, in tokens; None is what it does not tell.

    Attributes:
        prompt: Its length.
        cached: How many of them came from its cache.
    """

    prompt: int | None
    cached: int | None


class ChatServer:
    """Talks to one server. Use it as an async context manager.

    Certificates are verified with the system's trust store. Neither proxies of the environment nor
    redirections are followed: prompts go to this address and to no other.

    Args:
        base_url: Its address without ``/v1``.
        api_key: Sent with each request, or None.
        timeout: Seconds that one prompt may take.
    """

    def __init__(self, base_url: str, *, api_key: str | None = None, timeout: float = 600.0) -> None:
        self.base_url = base_url
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx2.AsyncClient(
            base_url=f"{base_url}/v1/",
            headers=headers,
            timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
            trust_env=False,
            follow_redirects=False,
        )
        self._seconds = timeout
        # One prompt at a time: a server that takes several at once would prefill them beside each other.
        self._turn = anyio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._client.aclose()

    async def models(self) -> tuple[str, ...]:
        """The names of the models that it serves.

        Raises:
            UnreachableError: It cannot be talked to.
            AnswerError: It answers something else.
        """
        try:
            return read_models(await self._ask("GET", "models", LIST_SECONDS))
        except AnswerError as error:
            # mlx_lm.server's answer is empty where there is no Hugging Face cache.
            raise (ModelListError() if error.status == 200 else error) from None

    async def prefill(self, request: dict[str, Any]) -> Usage:
        """Send a chat request for one token; what the server says of its prompt.

        Args:
            request: The body, without how many tokens to answer.

        Raises:
            UnreachableError: It cannot be talked to.
            AnswerError: It refuses, or answers something else.
        """
        body = {**request, "max_tokens": 1, "temperature": 0, "stream": False}
        async with self._turn:
            return read_usage(await self._ask("POST", "chat/completions", self._seconds, json=body))

    async def _ask(self, method: str, path: str, seconds: float, **options: Any) -> Any:
        try:
            # In all: one that drips would never be out of time between two of its bytes.
            with anyio.fail_after(seconds):
                body = await self._read(method, path, **options)
        except (httpx2.HTTPError, TimeoutError) as error:
            raise UnreachableError(describe(error)) from None
        try:
            return json.loads(body)
        # Nesting too deep to parse is no ValueError.
        except (ValueError, RecursionError):
            raise AnswerError(200) from None

    async def _read(self, method: str, path: str, **options: Any) -> bytes:
        body = bytearray()
        async with self._client.stream(method, path, **options) as answer:
            if answer.status_code != 200:
                raise AnswerError(answer.status_code)
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > MOST_BYTES:
                    raise AnswerError(200)
        return bytes(body)


class ModelListError(AnswerError):
    """The server does not say which models it has."""

    def __init__(self) -> None:
        super().__init__(200)
        self.args = (
            f"{self} as the list of its models (/models); without that list, --model names the model",
        )


def read_models(answer: Any) -> tuple[str, ...]:
    """The names in a list of models.

    Raises:
        AnswerError: It is no such list.
    """
    models = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(models, list):
        raise AnswerError(200)
    names = [model.get("id") if isinstance(model, dict) else None for model in models]
    if not all(isinstance(name, str) and _is_name(name) for name in names):
        raise AnswerError(200)
    return tuple(map(str, names))


def _is_name(text: str) -> bool:
    # Half of a surrogate pair, which JSON can write, cannot be sent back; it is not printable either.
    return 0 < len(text) <= LONGEST_NAME and text.isprintable()


def read_usage(answer: Any) -> Usage:
    """The usage in an answer; llama.cpp's server tells what was cached among its timings.

    Raises:
        AnswerError: It is no chat completion.
    """
    if not isinstance(answer, dict) or not isinstance(answer.get("choices"), list):
        raise AnswerError(200)
    usage = _table(answer, "usage")
    cached = _count(_table(usage, "prompt_tokens_details"), "cached_tokens")
    if cached is None:
        cached = _count(_table(answer, "timings"), "cache_n")
    return Usage(_count(usage, "prompt_tokens"), cached)


def _table(value: dict[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _count(value: dict[str, Any], key: str) -> int | None:
    found = value.get(key)
    return found if type(found) is int and found >= 0 else None


def describe(error: Exception) -> str:
    """What went wrong with a connection, in one line and without what was sent."""
    if isinstance(error, (httpx2.TimeoutException, TimeoutError)):
        return "the server does not answer in time"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the server's certificate cannot be verified: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return "no TLS connection can be made with the server"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx2.ConnectError):
        return "no connection can be made with the server"
    return f"the connection to the server broke ({type(error).__name__})"
