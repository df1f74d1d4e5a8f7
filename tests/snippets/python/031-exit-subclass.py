class Quit(SystemExit):
    code = 5
raise Quit(3)
