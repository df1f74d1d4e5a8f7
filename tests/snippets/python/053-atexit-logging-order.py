import atexit
@atexit.register
def early():
    print("early", logging.getLogger().handlers)
import logging
atexit.register(lambda: print("late"))
