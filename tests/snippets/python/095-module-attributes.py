import json, asyncio, math, os, collections.abc, importlib.util
for module in json, asyncio, math, os, collections.abc, importlib.util, json.decoder:
    spec = module.__spec__
    print(module.__name__, spec.name, spec.origin, type(spec.loader).__name__, module.__loader__ is spec.loader, getattr(module, "__file__", None), module.__package__, spec.submodule_search_locations)
