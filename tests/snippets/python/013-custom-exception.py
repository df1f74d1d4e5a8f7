class Failure(Exception):
    def __init__(self, code):
        super().__init__(f"failed with {code}")
        self.code = code

raise Failure(7)
