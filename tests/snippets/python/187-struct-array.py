import array, struct
print(struct.pack("<IHb", 1, 2, -3), array.array("d", [1.5]).tobytes(), struct.calcsize("P"))
