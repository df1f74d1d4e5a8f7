"""`save_as_pdf` under the name that scripts written for Skriptoteket import."""

from ringfence_tool import save_as_pdf

__all__ = ["save_as_pdf"]
