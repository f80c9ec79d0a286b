"""What the tests' collections call."""


def count(title: str) -> int:
    return len(title.split())


def double(words: int | None) -> int:
    if words is None:
        raise ValueError("no words")
    if words == 13:
        raise ValueError("thirteen is unlucky")
    return 2 * words
