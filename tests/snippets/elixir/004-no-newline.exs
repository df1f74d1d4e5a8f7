IO.write("no newline at the end")
