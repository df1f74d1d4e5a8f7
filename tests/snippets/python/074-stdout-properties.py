import sys
for stream in sys.stdin, sys.stdout, sys.stderr:
    print(stream.name, stream.mode, stream.encoding, stream.errors, stream.isatty(), stream.seekable(), stream.fileno())
print(type(sys.stdout).__name__, sys.stdout.newlines)
