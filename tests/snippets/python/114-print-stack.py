import traceback
def inner():
    traceback.print_stack()
    traceback.print_stack(limit=1)
inner()
