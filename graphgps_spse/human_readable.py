"""Text for sizes and durations."""


def as_size(num_bytes: float) -> str:
    """Return a size with a decimal unit, e.g. "1.5 GB"."""
    for unit in ("bytes", "kB", "MB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:,.3g} GB" if num_bytes < 1000 else f"{num_bytes:,.0f} GB"


def as_duration(seconds: float) -> str:
    """Return a duration with a suitable unit, e.g. "2.5 min"."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}" if seconds >= 10 * length else f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"


def roughly(seconds: float, *, at_least: bool = False) -> str:
    """Return an estimated duration, e.g. "about 2.5 min", or "more than 2.5 min" if it is a lower bound."""
    about = "more than " if at_least else "about "
    return f"{about if seconds >= 1 else ''}{as_duration(seconds)}"
