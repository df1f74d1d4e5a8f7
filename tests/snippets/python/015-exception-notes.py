error = ValueError("base")
if hasattr(error, "add_note"):
    error.add_note("first note")
    error.add_note("second note")
raise error
