def load():
    try:
        {}["key"]
    except KeyError as error:
        raise ValueError("no such setting") from error

def main():
    try:
        load()
    except ValueError:
        raise RuntimeError("cannot start")

main()
