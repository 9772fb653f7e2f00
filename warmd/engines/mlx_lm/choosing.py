"""Which files a prefix is loaded from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warmd.disk.cover import plan_load, uses_of
from warmd.disk.record import Record
from warmd.engines.base import Prefix
from warmd.engines.mlx_lm.intake import Request
from warmd.engines.mlx_lm.loading import Choice
from warmd.engines.mlx_lm.packing import Form
from warmd.engines.mlx_lm.store import WarmStore
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
    chosen = Choice(requests[0], ())
    for request in requests:
        form = request.form
        uses = uses_of(records_of(records, form, digest), request.tokens)
        size = len(request.tokens)
        plan = plan_load(uses, request.done, size, has_rows=form.has_rows, is_cuttable=form.is_cuttable)
        if plan and max(use.end for use in plan) >= request.least:
            chosen = Choice(request, plan)
            break
    reached = max((use.end for use in chosen.uses), default=chosen.request.done)
    others = [record for record in records if record.identity_digest != digest]
    further = [
        use.record
        for use in uses_of(others, chosen.request.tokens)
        if use.end == use.record.end and use.end > reached
    ]
    return chosen, further


def end_on_disk(records: Sequence[Record], form: Form, tokens: Tokens, done: int) -> int:
    """How far a path is held once its files are loaded, `done` tokens of it being held before.

    Args:
        records: Of the path's identity.
        form: How the state is kept.
        tokens: The path.
        done: At least so far.
    """
    uses = uses_of([record for record in records if record.is_quantised == form.is_quantised], tokens)
    size = len(tokens)
    plan = plan_load(uses, done, size, has_rows=form.has_rows, is_cuttable=form.is_cuttable)
    return max((use.end for use in plan), default=done)


def records_of(records: Sequence[Record], form: Form, digest: str) -> list[Record]:
    """The files with state of one form and identity."""
    return [
        record
        for record in records
        if record.identity_digest == digest and record.is_quantised == form.is_quantised
    ]


def requests_for(prefix: Prefix, store: WarmStore, forms: Mapping[bool, Form]) -> list[Request]:
    """What would do for a prefix: state of the form in which it is held, or the beginning before that."""
    first = store.quantised_from
    found: list[Request] = []
    if first is not None and len(prefix) >= first and True in forms:
        found.append(_request(forms[True], prefix.packed, store, least=first))
    plain = prefix.packed if first is None else prefix.packed[: first - 1]
    if plain and False in forms:
        found.append(_request(forms[False], plain, store))
    return [request for request in found if request.done < len(request.tokens)]


def _request(form: Form, tokens: Tokens, store: WarmStore, least: int = 1) -> Request:
    tree = store.tree(is_quantised=form.is_quantised)
    match = tree.match(tokens, len(tokens)) if tree is not None else None
    return Request(form, tokens, match.length if match is not None else 0, least)
