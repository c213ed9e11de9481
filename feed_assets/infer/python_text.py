"""Safe insertion of texts from files and paths into generated Python code, as literals and comments."""

LONGEST_COMMENT = 400
"""Maximum number of characters of a comment. More characters of a name or a path would help nobody."""


def literal(value: object) -> str:
    """Return a value as a Python literal. A text is in double quotes if possible."""
    text = repr(value)
    return f'"{text[1:-1]}"' if isinstance(value, str) and text[0] == "'" and '"' not in text else text


def comment(text: str, *, indent: int = 0) -> str:
    """Return a comment of one line. Unprintable characters are escaped, and the middle of a long text is cut."""
    line = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
    half = (LONGEST_COMMENT - indent - len("#  … ")) // 2
    short = line if len(line) <= 2 * half else f"{line[:half]} … {line[-half:]}"
    return f"{' ' * indent}# {short}"
