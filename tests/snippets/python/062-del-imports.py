class Thing:
    def __del__(self):
        try:
            import json
            print("imported")
        except ImportError as error:
            print("ImportError", error)
thing = Thing()
