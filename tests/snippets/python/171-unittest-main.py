import unittest, io, re, sys
class Case(unittest.TestCase):
    def test_good(self): self.assertEqual(1, 1)
    def test_bad(self): self.assertEqual(1, 2)
out = io.StringIO()
result = unittest.TextTestRunner(out).run(unittest.defaultTestLoader.loadTestsFromName("__main__"))
print(re.sub(r"in [\d.]+s", "in Xs", out.getvalue()))
sys.exit(not result.wasSuccessful())
