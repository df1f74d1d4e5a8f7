import logging
logging.warning("no set-up: %s", 1)
logging.basicConfig(level=logging.DEBUG, format="%(levelname)s:%(processName)s:%(threadName)s:%(message)s")
logging.debug("quiet")
logging.getLogger("named").error("loud")
try:
    1 / 0
except ZeroDivisionError:
    logging.exception("caught")
