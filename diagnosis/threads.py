"""Many small computations at once: one a thread, instead of all threads in each of them.

Products of a few hundred rows are too small to be shared: threads that wait for each other in every
one of them cost more than they save, and many times as much where other work is going on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch

Asked = TypeVar("Asked")
Found = TypeVar("Found")
MOST_THREADS = 8
"""Each has images and rows of its own in memory."""
_COUNT: ContextVar[int] = ContextVar("threads", default=1)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Inside it, each product is computed by one thread, and `in_threads` has as many as it may."""
    count = torch.get_num_threads()
    token = _COUNT.set(min(count, MOST_THREADS))
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)
        _COUNT.reset(token)


def in_threads(
    compute: Callable[[Asked], Found],
    asked: Sequence[Asked],
    tell: Callable[[int], None] | None = None,
) -> list[Found]:
    """The results, in order; ``tell`` is told, in the caller's thread, how many there are."""
    found: list[Found] = []
    for number, one in enumerate(each_in_threads(compute, asked), start=1):
        found.append(one)
        if tell is not None:
            tell(number)
    return found


def each_in_threads(compute: Callable[[Asked], Found], asked: Sequence[Asked]) -> Iterator[Found]:
    """One result after the other, in order, for who does not keep them.

    What is computed in one of several threads has that one alone; of one thing nobody else waits
    for, the parts may be computed in threads.
    """
    count = max(1, _COUNT.get())
    if count == 1 or len(asked) == 1:
        yield from map(compute, asked)
        return
    with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from pool.map(compute, asked)
