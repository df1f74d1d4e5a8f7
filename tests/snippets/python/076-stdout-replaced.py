import io, sys
real, sys.stdout = sys.stdout, io.StringIO()
print("hidden")
text = sys.stdout.getvalue()
sys.stdout = real
print(repr(text))
