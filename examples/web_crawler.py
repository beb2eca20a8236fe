"""Crawl pages that link to each other: each page is a run, which starts runs for its links and joins them.

    tickwork dev examples/web_crawler.py
    tickwork run examples/web_crawler.py:crawl -i page=home -i depth=3

Pages are read in parallel on all workers. The depth ends the recursion; workflows may call each other 32 deep.
"""

import tickwork as tw

LINKS = {
    "home": ["news", "shop", "about"],
    "news": ["today", "archive"],
    "shop": ["books", "music"],
    "archive": ["1999"],
}


@tw.task
def links_of(page: str, depth: int) -> list[str]:
    return LINKS.get(page, []) if depth > 0 else []  # stands for a request and a parser


@tw.task
def one_less(depth: int) -> int:
    return depth - 1


@tw.task
def joined(page: str, below: list[list[str]]) -> list[str]:
    return [page, *(name for pages in below for name in pages)]


@tw.workflow
def crawl(page: str = "home", depth: int = 3) -> list[str]:
    below = crawl.map(links_of(page, depth), depth=one_less(depth))
    return joined(page, below)
