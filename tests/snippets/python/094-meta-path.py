import sys
print([getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path])
print(len(sys.path_hooks), sorted(sys.path_importer_cache))
