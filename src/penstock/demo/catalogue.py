"""What the shop sells, and who buys: a few of everything do most of the trade."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import accumulate
from typing import Final


@dataclass(frozen=True, slots=True)
class Product:
    name: str
    category: str
    price_cents: int


def _shelf(category: str, *goods: tuple[str, int]) -> list[Product]:
    return [Product(name, category, cents) for name, cents in goods]


# In the order of their popularity within the category; the shop mixes the categories below.
_SHELVES: Final = (
    _shelf(
        "coffee",
        ("house blend 1 kg", 18_90),
        ("espresso roast 1 kg", 21_50),
        ("hand grinder", 64_00),
        ("pour-over set", 39_00),
        ("espresso machine", 449_00),
        ("milk frother", 54_90),
        ("decaf 500 g", 12_40),
        ("cold brew jug", 27_00),
    ),
    _shelf(
        "kitchen",
        ("chef's knife", 79_00),
        ("cast iron pan", 49_90),
        ("cutting board", 34_00),
        ("dutch oven", 119_00),
        ("mixing bowls", 29_90),
        ("kitchen scale", 24_50),
        ("whetstone", 38_00),
        ("apron", 22_00),
    ),
    _shelf(
        "books",
        ("The Log", 24_00),
        ("Streams for Cooks", 31_00),
        ("Slow Mornings", 16_50),
        ("Bread Science", 28_00),
        ("Field Guide to Tea", 19_00),
        ("Quiet Machines", 22_00),
    ),
    _shelf(
        "garden",
        ("tomato seeds", 3_90),
        ("pruning shears", 26_00),
        ("watering can", 32_50),
        ("herb planter", 18_00),
        ("rain gauge", 14_00),
        ("hammock", 89_00),
    ),
    _shelf(
        "desk",
        ("notebook A5", 11_00),
        ("fountain pen", 46_00),
        ("desk lamp", 69_00),
        ("ink, blue-black", 13_50),
        ("monitor stand", 58_00),
        ("cable box", 17_00),
    ),
)

PRODUCTS: Final = tuple(
    product
    for rank in range(max(len(shelf) for shelf in _SHELVES))
    for shelf in _SHELVES
    for product in shelf[rank : rank + 1]
)
"""By popularity: the first of each category, then the second of each, and so on."""

REGULARS: Final = 4_000
REGULAR_SHARE: Final = 0.35
"""The share of visits by customers who come again; the others are seen once."""
OFFER_FACTOR: Final = 12.0
"""How much more often the offer of the day is looked at."""

_PRODUCT_SKEW: Final = 1.0
_REGULAR_SKEW: Final = 0.9


def zipf_weights(count: int, skew: float) -> list[float]:
    """The popularity of the first, the second, …: one over the rank, to the power of the skew."""
    return [1 / rank**skew for rank in range(1, count + 1)]


class Assortment:
    """Products, drawn by how popular they are; each day one of the others is on offer and much looked at."""

    def __init__(self) -> None:
        self._weights = zipf_weights(len(PRODUCTS), _PRODUCT_SKEW)
        self._day = -1
        self._cumulative: list[float] = []

    def offer_of(self, day: int) -> Product:
        """The offer of a day. The favourites need none; a stride that shares no factor visits all the others."""
        rest = len(PRODUCTS) - 5
        return PRODUCTS[5 + (day * 11 + 7) % rest]

    def draw(self, rng: random.Random, day: int) -> Product:
        if day != self._day:
            offer = self.offer_of(day)
            weights = [
                weight * OFFER_FACTOR if product is offer else weight
                for product, weight in zip(PRODUCTS, self._weights, strict=True)
            ]
            self._day, self._cumulative = day, list(accumulate(weights))
        return rng.choices(PRODUCTS, cum_weights=self._cumulative)[0]


class Customers:
    """Regular customers, drawn by how often they come, and newcomers."""

    def __init__(self) -> None:
        self._cumulative = list(accumulate(zipf_weights(REGULARS, _REGULAR_SKEW)))
        self._names = [f"c{number:04}" for number in range(1, REGULARS + 1)]
        self._newcomers = 0

    def draw(self, rng: random.Random) -> str:
        if rng.random() < REGULAR_SHARE:
            return rng.choices(self._names, cum_weights=self._cumulative)[0]
        self._newcomers += 1
        return f"n{self._newcomers:06}"
