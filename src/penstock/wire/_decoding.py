"""Generates the Python function that decodes one version of one message.

The function reads a message front to back with all nested structs inlined. Adjacent fixed-size fields are read by a
single `unpack_from`, together with the length or count that follows them: in flexible versions that is the first byte
of a varint, which is nearly always its only one.

Bounds: `unpack_from` and indexing raise at the end of the buffer, but slices do not, so every length is compared with
the bytes left. Counts are compared with the bytes they need at least and with the element budget of the whole message,
before anything is allocated.
"""

from collections.abc import Callable, Generator
from struct import Struct, error, unpack_from
from typing import NoReturn, TypeVar

from penstock.wire._source import Source
from penstock.wire.compression import Buffer
from penstock.wire.errors import WireError
from penstock.wire.schema import (
    FIXED_FORMATS,
    FIXED_SIZES,
    Field,
    Message,
    element_size_min,
    is_nullable,
    layout,
    versions_of,
)

M = TypeVar("M", bound=Message)
Decoder = Callable[[Buffer, int, int, int], tuple[M, int]]
SlicedDecoder = Callable[[Buffer, int, int, int], Generator[None, None, tuple[M, int]]]

VARINT_SIZE_MAX = 5
STRING_BYTES_MAX = 32_767
SMALL_ARRAY = 32
TAGGED_FIELD_SIZE_MIN = 2  # one byte for its tag, one for its size


def compile_decoder(cls: type[M], version: int) -> Decoder[M]:
    """The function `(buffer, position, elements, tagged fields) -> (message, position)` for this version."""
    return _compiled(cls, version, sliced=False)  # type: ignore[return-value]


def compile_sliced_decoder(cls: type[M], version: int) -> SlicedDecoder[M]:
    """The same as a generator, which yields while it works and returns its result at the end."""
    return _compiled(cls, version, sliced=True)  # type: ignore[return-value]


def _compiled(cls: type[Message], version: int, *, sliced: bool) -> object:
    if version not in versions_of(cls):
        raise WireError(f"{cls.__name__} has no version {version}: it has {cls.schema.versions}")
    writer = _Writer(cls, version, sliced=sliced)
    writer.write()
    exec(writer.source.compile(f"decode {cls.__name__} v{version}"), writer.source.namespace)
    return writer.source.namespace["decode"]


class _Writer:
    def __init__(self, cls: type[Message], version: int, *, sliced: bool) -> None:
        self.cls = cls
        self.version = version
        self.sliced = sliced
        self.flexible = layout(cls, version).flexible
        self.views = _has_records(cls)
        self.source = Source(dict(_NAMESPACE))
        self.pending: list[tuple[str, str]] = []  # (format, variable) not yet read

    def write(self) -> None:
        add, block = self.source.add, self.source.block
        with block("def decode(buf, pos, elements, tags):"):
            # Plain bytes are faster to index and slice than a view; messages with records keep the view to avoid a
            # copy.
            add("" if self.views else "buf = bytes(buf)", "end = len(buf)")
            if self.sliced:
                add("yield")
            with block("try:"):
                expression = self.struct(self.cls)
                self.flush()
                add(f"return {expression}, pos")
            with block("except (struct_error, IndexError):"):
                add(f"raise WireError('{self.cls.__name__} v{self.version} is cut off') from None")
            with block("except UnicodeDecodeError:"):
                add(f"raise WireError('{self.cls.__name__} v{self.version}: a string is not UTF-8') from None")

    def struct(self, cls: type[Message]) -> str:
        """Reads a struct; returns the expression that constructs it, valid once the pending fields are read."""
        shape = layout(cls, self.version)
        values: dict[str, str] = {}
        for field in shape.tagged:
            variable = values[field.name] = self.source.name("t")
            self.source.add(f"{variable} = {self.default(cls, field.name)}")
        for field in shape.fields:
            values[field.name] = self.field(cls, field)
        if shape.flexible:
            self.tagged(cls, shape.tagged, values)
        return self.construct(cls, values)

    def construct(self, cls: type[Message], values: dict[str, str]) -> str:
        names = list(cls.__struct_fields__)
        while names and names[-1] not in values:
            names.pop()  # the class has defaults for the remaining fields
        arguments = [values[name] if name in values else self.default(cls, name) for name in names]
        return f"{self.source.constant('Class', cls)}({', '.join(arguments)})"

    def default(self, cls: type[Message], name: str) -> str:
        default = default_of(cls, name)
        if isinstance(default, Message):
            return f"{self.source.constant('Class', type(default))}()"
        return repr(default)

    def field(self, cls: type[Message], field: Field) -> str:
        path = f"{cls.__name__}.{field.name}"
        nullable = is_nullable(field, self.version)
        if field.array:
            return self.array(field, path, nullable)
        if not isinstance(field.type, str):
            return self.nullable_struct(field.type, path) if nullable else self.struct(field.type)
        if field.type in FIXED_FORMATS:
            variable = self.source.name("v")
            self.pending.append((FIXED_FORMATS[field.type], variable))
            return variable
        return self.blob(field.type, path, nullable)

    def nullable_struct(self, cls: type[Message], path: str) -> str:
        marker, variable = self.source.name("n"), self.source.name("v")
        self.pending.append(("b", marker))
        self.flush()
        self.source.add(f"{variable} = None")
        with self.source.block(f"if {marker} == 1:"):
            expression = self.struct(cls)
            self.flush()
            self.source.add(f"{variable} = {expression}")
        with self.source.block(f"elif {marker} != -1:"):
            self.source.add(f"bad_length({path!r}, {marker}, end - pos)")
        return variable

    def blob(self, kind: str, path: str, nullable: bool) -> str:
        """A string, bytes or records field: a length, then that many bytes."""
        add = self.source.add
        count, stop, variable = self.source.name("n"), self.source.name("e"), self.source.name("v")
        self.length("h" if kind == "string" else "i", count)
        add(f"{stop} = pos + {count}")
        check = [f"if not pos <= {stop} <= end: bad_length({path!r}, {count}, end - pos)"]
        take = [f"{variable} = {self.cut(kind, stop)}", f"pos = {stop}"]
        if nullable:
            add(f"{variable} = None")
            with self.source.block(f"if {count} != -1:"):
                add(*check, *take)
        else:
            add(*check, *take)
        return variable

    def cut(self, kind: str, stop: str) -> str:
        if kind == "string":
            return f"str(buf[pos:{stop}], 'utf-8')" if self.views else f"buf[pos:{stop}].decode()"
        if kind == "bytes" and self.views:
            return f"bytes(buf[pos:{stop}])"
        return f"buf[pos:{stop}]"

    def length(self, plain_format: str, variable: str) -> None:
        """Reads a length or count into a variable, as −1 for null in every encoding."""
        self.pending.append(("B" if self.flexible else plain_format, variable))
        self.flush()
        if self.flexible:
            rest = "string_length_rest" if plain_format == "h" else "varint_rest"
            self.source.add(f"if {variable} > 127: {variable}, pos = {rest}(buf, pos, {variable})")
            self.source.add(f"{variable} -= 1")

    def array(self, field: Field, path: str, nullable: bool) -> str:
        add = self.source.add
        count, variable = self.source.name("n"), self.source.name("v")
        self.length("i", count)
        size = element_size_min(field, self.version, self.flexible)
        checks = [
            f"if {count} < 0 or {count} * {size} > end - pos: bad_count({path!r}, {count}, end - pos)",
            f"elements -= {count}",
            f"if elements < 0: too_many_elements({path!r}, {count})",
        ]
        if not nullable:
            add(*checks)
            self.elements(field, path, count, variable)
            return variable
        add(f"{variable} = None")
        with self.source.block(f"if {count} != -1:"):
            add(*checks)
            self.elements(field, path, count, variable)
        return variable

    def elements(self, field: Field, path: str, count: str, variable: str) -> None:
        add = self.source.add
        if isinstance(field.type, str) and field.type in FIXED_FORMATS and field.type != "uuid":
            formats, size = FIXED_FORMATS[field.type], FIXED_SIZES[field.type]
            small = self.source.constant("small", _small_arrays(formats))
            add(
                f"{variable} = list({small}[{count}](buf, pos) if {count} < {SMALL_ARRAY} "
                f"else unpack_from(f'>{{{count}}}{formats}', buf, pos))",
                f"pos += {count} * {size}",
            )
            return
        if not self.sliced and not isinstance(field.type, str) and (plain := self.plain_struct(field.type)):
            formats, size, variables, expression = plain
            stop = self.source.name("e")
            add(
                f"{stop} = pos + {count} * {size}",
                f"{variable} = [{expression} for {', '.join(variables)}, in "
                f"{self.source.method(formats, 'iter_unpack')}(buf[pos:{stop}])]",
                f"pos = {stop}",
            )
            return
        add(f"{variable} = []")
        with self.source.block(f"for _ in range({count}):"):
            if self.sliced:
                add("yield")
            element = Field(field.name, field.type)
            expression = self.struct(field.type) if not isinstance(field.type, str) else self.field(self.cls, element)
            self.flush()
            add(f"{variable}.append({expression})")

    def plain_struct(self, cls: type[Message]) -> tuple[str, int, list[str], str] | None:
        """(formats, size, variables, expression) of a struct that has only fixed-size fields; None for others."""
        shape = layout(cls, self.version)
        kinds = [field.type for field in shape.fields if isinstance(field.type, str) and not field.array]
        if shape.flexible or not kinds or len(kinds) < len(shape.fields) or any(k not in FIXED_FORMATS for k in kinds):
            return None
        variables = [self.source.name("v") for _ in kinds]
        names = [field.name for field in shape.fields]
        expression = self.construct(cls, dict(zip(names, variables, strict=True)))
        return "".join(FIXED_FORMATS[k] for k in kinds), sum(FIXED_SIZES[k] for k in kinds), variables, expression

    def tagged(self, cls: type[Message], fields: tuple[Field, ...], values: dict[str, str]) -> None:
        add, block = self.source.add, self.source.block
        count = self.source.name("c")
        self.pending.append(("B", count))
        self.flush()
        with block(f"if {count}:"):
            if not fields:
                add(f"pos, tags = skip_tagged(buf, pos, end, {count}, tags)")
                return
            add(f"if {count} > 127: {count}, pos = varint_rest(buf, pos, {count})")
            add(f"tags -= {count}")
            add(f"if tags < 0 or {count} * {TAGGED_FIELD_SIZE_MIN} > end - pos: too_many_tagged({count})")
            tag, size, stop = self.source.name("g"), self.source.name("s"), self.source.name("e")
            with block(f"for _ in range({count}):"):
                add(f"{tag}, pos = varint(buf, pos)", f"{size}, pos = varint(buf, pos)", f"{stop} = pos + {size}")
                add(f"if {stop} > end: bad_length({cls.__name__!r}, {size}, end - pos)")
                for field in fields:
                    with block(f"if {tag} == {field.tag}:"):
                        variable = self.field(cls, field)
                        self.flush()
                        add(f"{values[field.name]} = {variable}")
                        add(f"if pos != {stop}: bad_tagged({cls.__name__ + '.' + field.name!r}, {size})")
                add(f"pos = {stop}")

    def flush(self) -> None:
        """Reads all pending fixed-size fields at once."""
        if not self.pending:
            return
        formats = "".join(formats for formats, _ in self.pending)
        variables = ", ".join(variable for _, variable in self.pending)
        self.pending.clear()
        if formats == "B":
            self.source.add(f"{variables} = buf[pos]; pos += 1")
        else:
            unpack = self.source.method(formats, "unpack_from")
            self.source.add(f"{variables}, = {unpack}(buf, pos); pos += {Struct('>' + formats).size}")


def default_of(cls: type[Message], name: str) -> object:
    """The class's default for this field."""
    default: object = getattr(cls(), name)
    return default


def _has_records(cls: type[Message]) -> bool:
    return any(
        field.type == "records" or (not isinstance(field.type, str) and _has_records(field.type))
        for field in cls.schema.fields
    )


def _small_arrays(formats: str) -> list[Callable[[Buffer, int], tuple[object, ...]]]:
    """Readers for arrays of 0, 1, 2, … elements: most are short, and parsing a format costs more than reading."""
    readers = _SMALL_ARRAYS.get(formats)
    if readers is None:
        readers = _SMALL_ARRAYS[formats] = [Struct(f">{n}{formats}").unpack_from for n in range(SMALL_ARRAY)]
    return readers


def _varint(buffer: Buffer, position: int) -> tuple[int, int]:
    first = buffer[position]
    return (first, position + 1) if first < 0x80 else _varint_rest(buffer, position + 1, first)


def _varint_rest(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned 32-bit varint whose first byte was read already."""
    value = first & 0x7F
    for shift in range(7, 7 * VARINT_SIZE_MAX, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                break
            return value, position
    raise WireError("a varint exceeds 32 bits")


def skip_tagged(buffer: Buffer, position: int, end: int, count: int, left: int) -> tuple[int, int]:
    """Skips tagged fields that this version does not know."""
    if count > 127:
        count, position = _varint_rest(buffer, position, count)
    left -= count
    if left < 0 or count * TAGGED_FIELD_SIZE_MIN > end - position:
        _too_many_tagged(count)
    for _ in range(count):
        _, position = _varint(buffer, position)
        size, position = _varint(buffer, position)
        if size > end - position:
            _bad_length("an unknown tagged field", size, end - position)
        position += size
    return position, left


def _bad_length(path: str, length: int, left: int) -> NoReturn:
    if length == -1:
        raise WireError(f"{path} may not be null")
    raise WireError(f"{path}: a length of {length} exceeds the {left} bytes left")


def _bad_count(path: str, count: int, left: int) -> NoReturn:
    if count == -1:
        raise WireError(f"{path} may not be null")
    raise WireError(f"{path}: {count} elements cannot fit into the {left} bytes that are left")


def _bad_tagged(path: str, size: int) -> NoReturn:
    raise WireError(f"{path}: the tagged field does not fill the {size} bytes it claims")


def _too_many_elements(path: str, count: int) -> NoReturn:
    raise WireError(f"{path}: {count} more elements exceed the limit of the message")


def _too_many_tagged(count: int) -> NoReturn:
    raise WireError(f"{count} more tagged fields exceed the limit of the message, or the bytes left")


_SMALL_ARRAYS: dict[str, list[Callable[[Buffer, int], tuple[object, ...]]]] = {}


def _string_length_rest(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Limits strings in flexible versions to the length that the two-byte lengths of older versions allow."""
    length, position = _varint_rest(buffer, position, first)
    if length > STRING_BYTES_MAX + 1:
        raise WireError(f"a string of {length - 1} bytes exceeds the maximum of {STRING_BYTES_MAX}")
    return length, position


_NAMESPACE: dict[str, object] = {
    "WireError": WireError,
    "struct_error": error,
    "unpack_from": unpack_from,
    "varint": _varint,
    "varint_rest": _varint_rest,
    "string_length_rest": _string_length_rest,
    "skip_tagged": skip_tagged,
    "bad_length": _bad_length,
    "bad_count": _bad_count,
    "bad_tagged": _bad_tagged,
    "too_many_elements": _too_many_elements,
    "too_many_tagged": _too_many_tagged,
}
