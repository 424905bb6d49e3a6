"""What would a schedule cost, and how much noise does a budget need? No data is looked at.

python examples/plan_a_budget.py
"""

from __future__ import annotations

import math

import fedlens


def shown(epsilon: float) -> float:
    """Three digits behind the point, never below the exact figure."""
    return math.ceil(epsilon * 1000) / 1000


schedule = {"sampling_rate": 0.01, "rounds": 1000, "delta": 1e-5, "users": 20_000}

cost = fedlens.budget(**schedule, noise_multiplier=1.0)
print(f"With noise 1 the schedule costs ε = {shown(cost.epsilon):.3f}.")
print(cost.statement)

print("\nThe same with more and with fewer rounds:")
for line in cost.what_if()["rounds"]:
    print(f"  {line.value:6g} rounds   ε = {shown(line.cost.best.epsilon):.3f}")

found = fedlens.calibrate(**schedule, epsilon=1.0)
print(f"\nFor ε = 1 the noise must be {found.noise_multiplier:.4f} times the clipping norm.")

most = fedlens.calibrate(
    epsilon=1.0, delta=1e-5, sampling_rate=0.01, noise_multiplier=1.5, users=20_000
)
print(f"With noise 1.5, ε = 1 is enough for {most.rounds} rounds.")
