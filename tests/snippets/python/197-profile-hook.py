import sys
calls = []
sys.setprofile(lambda frame, event, argument: calls.append(event))
len("x")
sys.setprofile(None)
print(calls)
