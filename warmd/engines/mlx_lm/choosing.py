"""Which files a prefix is loaded from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from warmd.disk.cover import plan_load, uses_of
from warmd.disk.record import Record
from warmd.engines.mlx_lm.intake import Request
from warmd.engines.mlx_lm.loading import Choice
from warmd.engines.mlx_lm.packing import Form
from warmd.radix import Tokens


def choose(
    records: Sequence[Record], requests: Sequence[Request], digest: str
) -> tuple[Choice, list[Record]]:
    """The files to read for the first request for which there are any.

    Args:
        records: All that there are.
        requests: What would do, the best first.
        digest: Of the identity that state has to have.

    Returns:
        The choice, and files with state of further tokens that is of another identity.
    """
    chosen = find(records, requests, digest)
    others = [record for record in records if record.identity_digest != digest]
    further = [
        use.record
        for use in uses_of(others, chosen.request.tokens)
        if use.end == use.record.end and use.end > chosen.end
    ]
    return chosen, further


def find(records: Sequence[Record], requests: Sequence[Request], digest: str) -> Choice:
    """The files to read for the first request for which there are enough; see `choose`."""
    for request in requests:
        form = request.form
        uses = uses_of(records_of(records, form, digest), request.tokens)
        size = len(request.tokens)
        plan = plan_load(uses, request.done, size, has_rows=form.has_rows, is_cuttable=form.is_cuttable)
        choice = Choice(request, plan)
        if plan and choice.end >= request.least:
            return choice
    return Choice(requests[0], ())


def records_of(records: Sequence[Record], form: Form, digest: str) -> list[Record]:
    """The files with state of one form and identity."""
    return [
        record
        for record in records
        if record.identity_digest == digest and record.is_quantised == form.is_quantised
    ]


def requests_for(
    tokens: Tokens,
    forms: Mapping[bool, Form],
    quantised_from: int | None,
    held: Callable[[Tokens, bool], int],
) -> list[Request]:
    """What would do for a prefix: state of the form in which it is held, or the beginning before that.

    Args:
        tokens: Of the prefix.
        forms: How state is kept, by whether it is quantised.
        quantised_from: The least length of a prefix that is held quantised; None where none is.
        held: How many of some tokens are held, quantised or not.
    """
    found: list[Request] = []

    def request(form: Form, tokens: Tokens, least: int) -> None:
        done = held(tokens, form.is_quantised)
        if done < len(tokens):
            found.append(Request(form, tokens, done, least))

    if quantised_from is not None and len(tokens) >= quantised_from and True in forms:
        request(forms[True], tokens, quantised_from)
    if False in forms:
        request(forms[False], tokens if quantised_from is None else tokens[: quantised_from - 1], 1)
    return found
