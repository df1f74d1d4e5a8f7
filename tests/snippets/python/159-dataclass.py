from dataclasses import dataclass, field, asdict
@dataclass(order=True)
class Item:
    price: float
    name: str = "x"
    tags: list = field(default_factory=list)
print(sorted([Item(2.0, "b"), Item(1.5)]), asdict(Item(1)))
