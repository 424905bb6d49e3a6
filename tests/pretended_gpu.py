"""A GPU that there is not: tensors that are said to be on it are told apart, and never mixed.

All is computed on the processor. What is moved to the *meta* device is taken to be on the GPU, and
so is what is made of it. As on a real one it cannot be read by NumPy, nor computed with tensors of
the processor that are more than a number.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

PRETENDED = torch.device("meta")
COPIES = ("copy_", "_to_copy")
LOOKS = ("index", "index_put", "index_put_", "_index_put_impl_")
"""What a GPU does with tensors of the processor too: copies, and places to look at."""


class OnTwoDevices(AssertionError):
    """A GPU would refuse it."""


def plain(tensor: Tensor) -> Tensor:
    """What lies under the layers of a transformation such as vmap."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


class _Memory(threading.local):
    """What is on the GPU, and what a thread is about.

    Storages on the GPU are known to all threads, and held, so that no other takes their place.
    """

    computed = 0
    """Operations on the GPU in this thread."""
    backward = False
    """Whether gradients are being computed of something on the GPU: all of that is there too,
    though what the engine makes afresh is made where tensors really are."""
    within: bool | None = None
    """In a function of PyTorch that Python called: whether it was given something on the GPU.
    What it makes for itself is there too, though it asks for where tensors really are."""

    def __init__(self, held: dict[int, Any]) -> None:
        self.held = held

    @contextmanager
    def pretended(self) -> Iterator[None]:
        """Hold this thread to it."""
        with _Placing(self), _Telling(self):
            yield

    def has(self, tensor: Tensor) -> bool:
        return plain(tensor).untyped_storage().data_ptr() in self.held

    def put(self, tensor: Tensor) -> Tensor:
        if not tensor.untyped_storage().nbytes():  # without memory it could not be known again
            tensor = tensor.new_empty(1).as_strided(tensor.shape, tensor.stride())
        storage = tensor.untyped_storage()
        self.held[storage.data_ptr()] = storage
        return tensor


class _Placing(TorchDispatchMode):
    def __init__(self, memory: _Memory) -> None:
        super().__init__()
        self.memory = memory

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = func._schema.name.split("::")[1]
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        wanted = kwargs.get("device")
        if wanted is not None:
            kwargs["device"] = torch.device("cpu")
        there = [self.memory.has(one) for one in given]
        here = [one for one, on in zip(given, there, strict=True) if not on and one.dim()]
        backward = self._engine_alone()
        if any(there) and here and not (self._may_mix(name, args) or backward):
            raise OnTwoDevices(f"{name} of tensors on two devices: {[o.shape for o in given]}")
        made = func(*args, **kwargs)
        if wanted is None or self.memory.within:
            on = any(there) if given else bool(self.memory.within)
        else:
            on = wanted == PRETENDED
        if name == "copy_" or name in LOOKS:
            on = there[0]
        if on or backward:
            self.memory.computed += 1
            own = {one.untyped_storage().data_ptr() for one in given if not self.memory.has(one)}

            def mark(tensor: Tensor) -> Tensor:
                shared = tensor.untyped_storage().data_ptr() in own
                return self.memory.put(tensor.clone() if shared else tensor)

            made = tree_map_only(Tensor, mark, made)
        return made

    def _may_mix(self, name, args) -> bool:
        if name not in LOOKS:
            return name in COPIES
        written = args[2:3]
        return all(self.memory.has(one) for one in (args[0], *written) if one.dim())

    def _engine_alone(self) -> bool:
        """Whether gradients are computed, and not by Python's own words."""
        memory, task = self.memory, torch._C._current_graph_task_id()
        return memory.backward and memory.within is None and task != -1


class _Telling(TorchFunctionMode):
    def __init__(self, memory: _Memory) -> None:
        super().__init__()
        self.memory = memory

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        first = args[0] if args else None
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") == PRETENDED:
            return func(*args, **{**kwargs, "device": "cpu"}).to(PRETENDED)
        if isinstance(first, Tensor) and self.memory.has(first):
            if func == Tensor.device.__get__:
                return PRETENDED
            if func is Tensor.cpu or (func is Tensor.to and _to_processor(args, kwargs)):
                return _copied(first)
            if func is Tensor.__deepcopy__:  # copies its storage by itself
                return self.memory.put(func(*args, **kwargs))
            if func is Tensor.new_tensor:
                return func(*args, **kwargs).to(PRETENDED)
            if func in (Tensor.numpy, Tensor.__array__):
                raise OnTwoDevices("NumPy cannot read a tensor that is on a GPU")
        elif func is Tensor.to and isinstance(first, Tensor):
            other = next((one for one in args[1:] if isinstance(one, Tensor)), None)
            if other is not None and self.memory.has(other):
                return func(first, PRETENDED, other.dtype)
        return self._called(func, args, kwargs)

    def _called(self, func, args, kwargs):
        given = (one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor))
        before = self.memory.within
        self.memory.within = any(map(self.memory.has, given)) and "device" not in kwargs
        try:
            return func(*args, **kwargs)
        finally:
            self.memory.within = before


def _to_processor(args: Any, kwargs: Any) -> bool:
    wanted = [*args[1:], *kwargs.values()]
    return any(one in ("cpu", torch.device("cpu")) for one in wanted if not isinstance(one, Tensor))


def _copied(tensor: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        return torch.zeros(tensor.shape, dtype=tensor.dtype).copy_(tensor)


@contextmanager
def pretended_gpu(monkeypatch: Any) -> Iterator[_Memory]:
    """A machine with a GPU, as far as `fedlens.models.devices.best_device` says.

    It holds in this thread, and in another one inside `pretended` of what it gives.

    Raises:
        OnTwoDevices: what a GPU would refuse.
    """
    memory, run_backward = _Memory({}), torch.autograd._engine_run_backward
    autocasting = torch.autocast

    def backward(roots: Any, *more: Any, **named: Any) -> Any:
        before = memory.backward, memory.within
        memory.backward, memory.within = any(map(memory.has, roots)), None
        try:
            with _Telling(memory):  # it is off inside of what it tells of
                return run_backward(roots, *more, **named)
        finally:
            memory.backward, memory.within = before

    def autocast(kind: str, **more: Any) -> Any:
        return autocasting("cpu" if kind == PRETENDED.type else kind, **more)

    with monkeypatch.context() as patch:
        patch.setattr("fedlens.models.devices.best_device", lambda: PRETENDED)
        patch.setattr("torch.autograd._engine_run_backward", backward)
        patch.setattr("torch.autocast", autocast)
        with memory.pretended():
            yield memory
