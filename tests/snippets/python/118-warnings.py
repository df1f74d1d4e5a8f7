import warnings
def old():
    warnings.warn("use new()", DeprecationWarning, stacklevel=2)
old()
warnings.warn("plain warning")
warnings.warn("level two", stacklevel=2)
