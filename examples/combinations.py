"""Map over several lists at once, and over a dict: try every setting, then compare with the limits of each city.

    tickwork run examples/combinations.py:quiet_tyres

`tw.product` makes every combination, `tw.zip` pairs the items of lists, `tw.entries` takes the keys and values of a
dict and gives a dict. The server stores no list of the combinations.
"""

import tickwork as tw


@tw.task
def limits() -> dict[str, int]:
    return {"Bergen": 30, "Oslo": 20}


@tw.task
def noise(speed: int, tyres: str) -> int:
    return speed // 2 + len(tyres)


@tw.task
def label(level: int, number: int) -> str:
    return f"#{number}: {level} dB"


@tw.task
def below(city: str, limit: int, levels: list[int]) -> str:
    fits = sum(level <= limit for level in levels)
    return f"{fits} of {len(levels)} settings are quiet enough for {city}"


@tw.task
def report(labels: list[str], cities: dict[str, str]) -> str:
    return f"{labels[0]}; {cities['Bergen']}; {cities['Oslo']}"


@tw.workflow
def quiet_tyres(speeds: list[int] = [30, 50], tyres: list[str] = ["soft", "winter"]) -> str:
    levels = noise.map(tw.product(speed=speeds, tyres=tyres))  # 30 soft, 30 winter, 50 soft, 50 winter
    labels = label.map(tw.zip(levels, [1, 2, 3, 4]))
    return report(labels, below.map(tw.entries(limits()), levels=levels))
