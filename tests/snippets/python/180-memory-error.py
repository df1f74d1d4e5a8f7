try:
    bytearray(1 << 60)
except (MemoryError, OverflowError) as error:
    print(type(error).__name__)
