import sys
before = set(sys.modules)
import json
print([name for name in sys.modules if name not in before])
before = set(sys.modules)
import asyncio
print([name for name in sys.modules if name not in before])
before = set(sys.modules)
import urllib.request
print([name for name in sys.modules if name not in before])
before = set(sys.modules)
import dataclasses, typing, logging, decimal, random, subprocess, collections.abc
print([name for name in sys.modules if name not in before])
