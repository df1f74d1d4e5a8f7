"""`ToolUserError` under the name that scripts written for Skriptoteket import."""

from ringfence_tool import ToolUserError

__all__ = ["ToolUserError"]
