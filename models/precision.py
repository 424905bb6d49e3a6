"""The precision in which a network is trained: float32, or bfloat16 where that is fast."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    import torch

Precision = Literal["float32", "bfloat16", "auto"]
_FAST = ("avx512_bf16", "amx_bf16")
"""Instructions of a processor that multiply bfloat16, as PyTorch names them."""


def has_fast_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 faster than float32."""
    import torch  # settings name a precision, and reading them shall load no framework

    found: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()  # not in every version
    return any(found.get(name, False) for name in _FAST)


def chosen(precision: Precision) -> torch.dtype:
    """The type of products: what is asked for, ``auto`` being the faster on this machine."""
    import torch

    if precision == "auto":
        precision = "bfloat16" if has_fast_bfloat16() else "float32"
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def multiplying_in(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[None]:
    """Inside it, products and convolutions are of ``dtype``; sums and weights stay float32."""
    import torch

    if dtype == torch.float32:
        return nullcontext()
    return cast("AbstractContextManager[None]", torch.autocast(device.type, dtype=torch.bfloat16))
