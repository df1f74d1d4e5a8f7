import sys
events = []
def tracer(frame, event, argument):
    events.append((frame.f_code.co_name, event))
    return tracer
def traced():
    return 1
sys.settrace(tracer)
traced()
sys.settrace(None)
print(events)
