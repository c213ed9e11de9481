"""Limit for the paths of columns in a Parquet footer, before pyarrow parses it.

pyarrow keeps the whole path of each column. A footer of 1 MB may have 60,000 columns below a group with a long name,
which would take 30 GB. Only the lengths of names are read here, from Thrift's compact protocol.
"""

from collections.abc import Iterator

PATH_BYTES = 64 << 20
"""Maximum number of bytes of the paths of all columns. pyarrow takes about twice their length in memory."""

_SCHEMA, _NAME, _CHILDREN = 2, 4, 5
"""Numbers of fields: the schema in a footer, and the name and the number of children of one of its elements."""

_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _MAP, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 11, 12
_LONG_LIST = 15
_LONGEST_VARINT = 63


def check_paths(footer: bytes) -> None:
    """Raise OSError if the paths of all columns are too long together, or if the footer is not valid Thrift."""
    try:
        size = _Thrift(footer).path_bytes()
    except (LookupError, RecursionError, ValueError) as error:
        raise OSError(f"It is not valid Thrift ({type(error).__name__}).") from error
    if size > PATH_BYTES:
        raise OSError(f"The paths of its columns have {size:,} bytes: expected at most {PATH_BYTES:,}.")


class _Thrift:
    """A reader of Thrift's compact protocol, which skips what is not asked for."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def path_bytes(self) -> int:
        """Return the bytes of all paths. If there are several schemas, the one with the most counts."""
        most = 0
        for field, kind in self._fields():
            if field == _SCHEMA and kind in _LISTS:
                most = max(most, self._schema())
            else:
                self._skip(kind)
        return most

    def _schema(self) -> int:
        """Return the bytes of the paths of a schema's leaves. Its groups come before their children."""
        total, above = 0, list[list[int]]()  # For each group around the next element: children to come, path length.
        for _ in range(self._list_head()[0]):
            name, children = self._element()
            while above and not above[-1][0]:
                above.pop()
            length = name + 1 + (above[-1][1] if above else 0)
            if above:
                above[-1][0] -= 1
            if children > 0:
                above.append([children, length])
            else:
                total += length
        return total

    def _element(self) -> tuple[int, int]:
        """Return the length of an element's name, and its number of children."""
        name = children = 0
        for field, kind in self._fields():
            if field == _NAME and kind == _BINARY:
                name = self._varint()
                self._at += name
            elif field == _CHILDREN and kind in _INTEGERS:
                children = _signed(self._varint())
            else:
                self._skip(kind)
        return name, children

    def _fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and kind of each field of a struct. The caller reads or skips its value."""
        field = 0
        while (head := self._byte()) & 15:  # The kind 0 ends a struct.
            field = (field + (head >> 4) if head >> 4 else _signed(self._varint())) & 0xFFFF  # as a C++ reader cuts it
            yield field, head & 15

    def _skip(self, kind: int) -> None:
        if kind == _STRUCT:
            for _, each in self._fields():
                self._skip(each)
        elif kind in _LISTS:
            count, item = self._list_head()
            for _ in range(count):
                self._skip_item(item)
        elif kind == _MAP:
            count = self._varint()
            kinds = self._byte() if count else 0
            for _ in range(count):
                self._skip_item(kinds >> 4)
                self._skip_item(kinds & 15)
        else:
            self._skip_plain(kind)

    def _skip_item(self, kind: int) -> None:
        self._skip(_BYTE if kind in _BOOLEANS else kind)  # As a field, a boolean is a part of its kind.

    def _skip_plain(self, kind: int) -> None:
        if kind in _INTEGERS:
            self._varint()
        elif kind == _BINARY:
            size = self._varint()
            self._at += size
        elif kind not in _BOOLEANS:
            self._at += {_BYTE: 1, _DOUBLE: 8}[kind]

    def _list_head(self) -> tuple[int, int]:
        """Return the number and the kind of a list's items."""
        head = self._byte()
        return (self._varint() if head >> 4 == _LONG_LIST else head >> 4), head & 15

    def _varint(self) -> int:
        """Return the lower 32 bits of a number. Longer numbers are only skipped."""
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > _LONGEST_VARINT:
                raise ValueError("a number of more than 64 bits")
        return (value | byte << shift) & 0xFFFFFFFF

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]


def _signed(number: int) -> int:
    """Return the signed integer that is stored as this unsigned one."""
    return number >> 1 ^ -(number & 1)
