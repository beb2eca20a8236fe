"""Methods as tasks: those of a class, and those of an object that workers know by name.

    tickwork run examples/methods.py:invoice

Workers load this file themselves, so they call the object that is created here, under the same name.
"""

import tickwork as tw


class Prices:
    def __init__(self, vat_percent: int) -> None:
        self.vat_percent = vat_percent

    @tw.task
    def gross(self, net: int) -> int:
        return net + net * self.vat_percent // 100

    @tw.task
    @staticmethod
    def add(amounts: list[int]) -> int:
        return sum(amounts)

    @tw.task
    @classmethod
    def label(cls, amount: int) -> str:
        return f"{cls.__name__}: {amount}"


germany = tw.instance("germany", Prices(vat_percent=19))


@tw.workflow
def invoice(items: list[int] = [100, 200, 300]) -> str:
    return Prices.label(Prices.add(germany.gross.map(items)))
