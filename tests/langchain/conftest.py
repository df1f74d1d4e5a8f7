"""The suite is all of what it was: tests that are left out would not be missed otherwise."""

ALL = 86


def pytest_sessionfinish(session):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    passed = len(reporter.stats.get("passed", []))
    if passed != ALL:
        print(f"\n{passed} tests of the suite have passed, and {ALL} should have")
        session.exitstatus = 1
