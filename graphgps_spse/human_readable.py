"""Sizes and times for people to read."""


def as_size(num_bytes: float) -> str:
    """Return a size for people to read."""
    for unit in ("bytes", "kB", "MB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:,.3g} GB" if num_bytes < 1000 else f"{num_bytes:,.0f} GB"


def as_duration(seconds: float) -> str:
    """Return a time for people to read."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}" if seconds >= 10 * length else f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"
