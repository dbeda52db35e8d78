"""Written by the build."""

TORCH_VERSION: str
