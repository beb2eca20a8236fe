"""The engine inside a script. There is no server to start, and submitted runs survive the end of the script."""

import tickwork as tw


@tw.task(retries=2)
def square(n: int) -> int:
    return n * n


@tw.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@tw.workflow
def squares(upto: int) -> int:
    return total(square.map(numbers(upto)))


@tw.task
def numbers(upto: int) -> list[int]:
    return list(range(1, upto + 1))


if __name__ == "__main__":
    with tw.embedded(data=".tickwork-script") as client:
        run = client.submit(squares, upto=10)
        print(f"1² + 2² + … + 10² = {client.result(run)}")
