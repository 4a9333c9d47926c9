"""Parts that are installed only where they are needed, and what to say where one is missing."""

from repshare.errors import ConfigError

# The packages that each extra of pyproject.toml brings, by the names under which they are imported.
EXTRAS = {
    "learn": ("torch", "sklearn", "pooch", "PIL", "matplotlib", "plotly"),
    "relay": ("fastapi", "starlette", "uvicorn", "httptools", "prometheus_client"),
    "redis": ("redis",),
    "ray": ("ray",),
    "peer": ("zenoh", "cryptography"),
    "privacy": ("dp_accounting", "opacus", "scipy"),
}


def missing(error: ModuleNotFoundError) -> ConfigError:
    """What to tell the user instead. Raises the error itself if no extra would help."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if module in modules:
            return ConfigError(f"this needs {module}, which is not installed: pip install 'repshare[{extra}]'")
    raise error
