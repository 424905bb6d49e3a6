"""Traces of a run for OpenTelemetry, where its operator asks for them; off by default.

``FEDLENS_TRACES=otlp`` sends spans to a collector, as OpenTelemetry's own variables say
(``OTEL_EXPORTER_OTLP_ENDPOINT``); the path of a file has them appended to it as JSON, one a line.
Spans are a run, its rounds, and the parts that `fedlens.foundation.profile` names: messages,
accounting, noise, the store. Their attributes are the run's name, the round's number and the task:
nothing of users, and no exception's text. Their *times* tell how long rounds took, and with that
something of who was drawn: traces are for the operator's eyes, like logs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

VARIABLE = "FEDLENS_TRACES"
"""Environment variable: ``otlp``, an absolute path, or nothing."""
WHOLE = frozenset({"generator"})
"""Parts with hundreds of short ones inside, which get no spans of their own."""

Open = Callable[[str, Mapping[str, str | int]], AbstractContextManager[object]]
_open: ContextVar[Open | None] = ContextVar("open_span", default=None)


@contextmanager
def traced(name: str, **facts: str | int) -> Iterator[None]:
    """What happens inside is one span, where somebody asks for traces.

    Args:
        name: of the span.
        facts: its attributes, which must tell nothing of users.
    """
    opened = _open.get()
    if opened is None:
        yield
        return
    with ExitStack() as stack:
        stack.enter_context(opened(name, facts))
        if name in WHOLE:
            token = _open.set(None)
            stack.callback(_open.reset, token)
        yield


@contextmanager
def traces(environment: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Have spans recorded while the context lasts, if the environment says so.

    Raises:
        WrongUse: it says something that cannot be, or OpenTelemetry is not installed.
    """
    wanted = environment.get(VARIABLE, "")
    if not wanted:
        yield
        return
    with _recorded(wanted) as opened:
        token = _open.set(opened)
        try:
            yield
        finally:
            _open.reset(token)


@contextmanager
def _recorded(wanted: str) -> Iterator[Open]:
    with ExitStack() as stack:
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            exporter = stack.enter_context(_exporter(wanted))
        except ImportError:
            raise WrongUse(
                f"{VARIABLE}={wanted}: OpenTelemetry is not installed: pip install "
                "'fedlens[traces]', or leave the variable out"
            ) from None
        provider = TracerProvider(
            resource=Resource({"service.name": "fedlens"}), shutdown_on_exit=False
        )
        provider.add_span_processor(BatchSpanProcessor(exporter))
        stack.callback(provider.shutdown)  # sends what is left
        tracer = provider.get_tracer("fedlens")

        def opened(name: str, facts: Mapping[str, str | int]) -> AbstractContextManager[object]:
            return tracer.start_as_current_span(
                name,
                attributes={f"fedlens.{key}": value for key, value in facts.items()},
                record_exception=False,  # its text may hold anything
                set_status_on_exception=False,
            )

        yield opened


@contextmanager
def _exporter(wanted: str) -> Iterator[SpanExporter]:
    if wanted == "otlp":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        yield OTLPSpanExporter()
        return
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

    path = Path(wanted)
    if not path.is_absolute():
        raise WrongUse(f"{VARIABLE}={wanted}: give otlp, or the absolute path of a file")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise WrongUse(f"{VARIABLE}={wanted}: {error.strerror}; name a file elsewhere") from None
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        yield ConsoleSpanExporter(out=file, formatter=lambda span: span.to_json(indent=None) + "\n")
