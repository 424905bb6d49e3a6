"""Ending a run at a chosen instant, as a power cut would, and going on with it."""

from __future__ import annotations

import pytest


class PowerCut(BaseException):
    """What a test raises in place of the process's death."""


def cut_power(monkeypatch, owner, name, when, call=2):
    """Have the ``call``-th call of a method end the run."""
    original, calls = getattr(owner, name), [0]

    def cut(self, *args, **kwargs):
        calls[0] += 1
        if calls[0] == call and when == "before":
            raise PowerCut
        result = original(self, *args, **kwargs)
        if calls[0] == call:
            raise PowerCut
        return result

    monkeypatch.setattr(owner, name, cut)


def interrupted(monkeypatch, run_small, config, point, name="run"):
    """The outcome of a run that was cut at ``point`` and then taken up again."""
    with monkeypatch.context() as patch:
        cut_power(patch, *point)
        with pytest.raises(PowerCut):
            run_small(config, name)
    return run_small(config, name)
