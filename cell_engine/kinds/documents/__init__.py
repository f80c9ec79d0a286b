"""Documents of files: their pages as text, and what they say of themselves. Pure: bytes in, a Document out.

The readers trust nothing of what they read, and are called in a process of their own all the same
(`cell_engine.kinds.documents.reader` by `cell_engine.kinds.parsers`).
"""
