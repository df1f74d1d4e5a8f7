command = ["go", "north"]
match command:
    case ["go", direction]:
        print("going", direction)
    case _:
        print("?")
