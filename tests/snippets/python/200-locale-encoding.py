import locale, sys
print(sys.getfilesystemencoding(), locale.getpreferredencoding(), sys.getdefaultencoding(), sys.stdin.encoding)
