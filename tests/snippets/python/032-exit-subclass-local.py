def leave():
    class Quit(SystemExit):
        def __init__(self):
            self.code = 9
    raise Quit
leave()
