def shout(content: str) -> str:
    return content.upper()


def length(file: str) -> int:
    return len(file)
