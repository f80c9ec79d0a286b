def shout(content: str) -> str:
    return content.upper()
