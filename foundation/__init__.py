"""What every floor stands on: errors, registries, durable files, rounding; no dependency."""
