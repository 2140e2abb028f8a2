"""Generates the Python function that encodes one version of one message.

The cost in Python is the number of steps, so the generated function puts as much as possible into one `pack`: adjacent
fixed-size fields, the length or count after them, and whole arrays of integers in between (the `struct` for such a run
depends on the lengths of its arrays and is cached by them). A compact length below 128 takes one byte; the rare longer
ones take a slow path, piece by piece. Both paths are generated from the same list of pieces, so they cannot diverge.
"""

from collections.abc import Callable, Generator
from struct import Struct, pack
from typing import TypeVar

from penstock.wire._decoding import default_of
from penstock.wire._source import Source
from penstock.wire.errors import WireError
from penstock.wire.schema import FIXED_FORMATS, Field, Message, is_nullable, layout, versions_of

M = TypeVar("M", bound=Message)
Encoder = Callable[[M, bytearray], None]
SlicedEncoder = Callable[[M, bytearray], Generator[None, None, None]]

# The largest number of array elements packed at once, and the number of cached shapes per run.
RUN_ELEMENTS_MAX = 100
RUN_SHAPES_MAX = 512


def compile_encoder(cls: type[M], version: int) -> Encoder[M]:
    """The function `(message, out)` for this version."""
    return _compiled(cls, version, sliced=False)  # type: ignore[return-value]


def compile_sliced_encoder(cls: type[M], version: int) -> SlicedEncoder[M]:
    """The same as a generator, which yields while it works."""
    return _compiled(cls, version, sliced=True)  # type: ignore[return-value]


def _compiled(cls: type[Message], version: int, *, sliced: bool) -> object:
    if version not in versions_of(cls):
        raise WireError(f"{cls.__name__} has no version {version}: it has {cls.schema.versions}")
    writer = _Writer(cls, version, sliced=sliced)
    writer.write()
    exec(writer.source.compile(f"encode {cls.__name__} v{version}"), writer.source.namespace)
    return writer.source.namespace["encode"]


class _Piece:
    """A value to be written: `expression` in `formats`, or as a varint, or an array with its count."""

    def __init__(self, formats: str, expression: str, *, varint: bool = False, array: str = "") -> None:
        self.formats = formats
        self.expression = expression
        self.varint = varint
        self.array = array


class _Writer:
    def __init__(self, cls: type[Message], version: int, *, sliced: bool) -> None:
        self.cls = cls
        self.version = version
        self.sliced = sliced
        self.flexible = layout(cls, version).flexible
        self.source = Source(dict(_NAMESPACE))
        self.pending: list[_Piece] = []
        self.out = "out"

    def write(self) -> None:
        with self.source.block("def encode(o, out):"):
            if self.sliced:
                self.source.add("yield")
            self.struct(self.cls, "o")
            self.flush()
            self.source.add("return None")

    def struct(self, cls: type[Message], owner: str) -> None:
        shape = layout(cls, self.version)
        for field in shape.fields:
            self.field(field, f"{owner}.{field.name}")
        if shape.flexible:
            self.tagged(cls, shape.tagged, owner)

    def field(self, field: Field, expression: str) -> None:
        nullable = is_nullable(field, self.version)
        if field.array:
            self.array(field, expression, nullable)
        elif not isinstance(field.type, str):
            if nullable:
                self.nullable_struct(field.type, expression)
            else:
                owner = self.source.name("o")
                self.source.add(f"{owner} = {expression}")
                self.struct(field.type, owner)
        elif field.type in FIXED_FORMATS:
            self.pending.append(_Piece(FIXED_FORMATS[field.type], expression))
        else:
            self.blob(field.type, expression, nullable)

    def nullable_struct(self, cls: type[Message], expression: str) -> None:
        owner = self.source.name("o")
        self.source.add(f"{owner} = {expression}")
        self.pending.append(_Piece("b", f"-1 if {owner} is None else 1"))
        self.flush()
        with self.source.block(f"if {owner} is not None:"):
            self.struct(cls, owner)
            self.flush()

    def blob(self, kind: str, expression: str, nullable: bool) -> None:
        add = self.source.add
        value, count = self.source.name("b"), self.source.name("n")
        encode = ".encode()" if kind == "string" else ""
        extra = " + 1" if self.flexible else ""
        if nullable:
            add(f"{value} = {expression}")
            with self.source.block(f"if {value} is None:"):
                add(f"{value} = b''", f"{count} = {'0' if self.flexible else '-1'}")
            with self.source.block("else:"):
                add(f"{value} = {value}{encode}" if encode else "", f"{count} = len({value}){extra}")
        else:
            add(f"{value} = {expression}{encode}", f"{count} = len({value}){extra}")
        self.length(count, "h" if kind == "string" else "i")
        self.flush()
        add(f"{self.out} += {value}")

    def length(self, variable: str, plain_format: str) -> None:
        if self.flexible:
            self.pending.append(_Piece("B", variable, varint=True))
        else:
            self.pending.append(_Piece(plain_format, variable))

    def array(self, field: Field, expression: str, nullable: bool) -> None:
        add = self.source.add
        items, count = self.source.name("a"), self.source.name("n")
        extra = " + 1" if self.flexible else ""
        add(f"{items} = {expression}")
        if nullable:
            with self.source.block(f"if {items} is None:"):
                add(f"{items} = ()", f"{count} = {'0' if self.flexible else '-1'}")
            with self.source.block("else:"):
                add(f"{count} = len({items}){extra}")
        else:
            add(f"{count} = len({items}){extra}")
        self.length(count, "i")
        if isinstance(field.type, str) and field.type in FIXED_FORMATS and field.type != "uuid":
            self.pending.append(_Piece(FIXED_FORMATS[field.type], items, array=items))
            return
        self.flush()
        item = self.source.name("o")
        with self.source.block(f"for {item} in {items}:"):
            if self.sliced:
                add("yield")
            if isinstance(field.type, str):
                self.field(Field(field.name, field.type), item)
            else:
                self.struct(field.type, item)
            self.flush()

    def tagged(self, cls: type[Message], fields: tuple[Field, ...], owner: str) -> None:
        if not fields:
            self.pending.append(_Piece("B", "0"))
            return
        conditions = [(field, self.differs(cls, field, f"{owner}.{field.name}")) for field in fields]
        count = self.source.name("c")
        self.source.add(f"{count} = {' + '.join(f'({condition})' for _, condition in conditions)}")
        self.pending.append(_Piece("B", count, varint=True))
        self.flush()
        with self.source.block(f"if {count}:"):
            for field, condition in conditions:
                with self.source.block(f"if {condition}:"):
                    self.tagged_value(field, f"{owner}.{field.name}")

    def tagged_value(self, field: Field, expression: str) -> None:
        """Writes the value into its own buffer first, because its size precedes it."""
        outer, inner = self.out, self.source.name("x")
        self.source.add(f"{inner} = bytearray()")
        self.out = inner
        self.field(field, expression)
        self.flush()
        self.out = outer
        self.source.add(
            f"write_varint({outer}, {field.tag})", f"write_varint({outer}, len({inner}))", f"{outer} += {inner}"
        )

    def differs(self, cls: type[Message], field: Field, expression: str) -> str:
        """The condition for writing a tagged field: only values other than the default are sent."""
        default = default_of(cls, field.name)
        if default is None and not isinstance(field.type, str) and not field.array:
            if is_nullable(field, self.version):
                return f"{expression} is not None"
            nothing = self.source.constant("nothing", field.type())
            return f"{expression} is not None and {expression} != {nothing}"
        if default is None:
            return f"{expression} is not None"
        return f"{expression} != {default!r}"

    def flush(self) -> None:
        """Writes all pending pieces, in one `pack` if possible."""
        pieces, self.pending = self.pending, []
        if not pieces:
            return
        if all(piece.expression.isdigit() for piece in pieces):
            self.source.add(f"{self.out} += {bytes(int(piece.expression) for piece in pieces)!r}")
            return
        arrays = [piece.array for piece in pieces if piece.array]
        varints = [piece.expression for piece in pieces if piece.varint]
        conditions = [f"{variable} < 128" for variable in varints]
        lengths = [f"len({array})" for array in arrays]
        if arrays:
            conditions.append(f"{' + '.join(lengths)} <= {RUN_ELEMENTS_MAX}")
        if not conditions:
            self.packed(pieces)
            return
        with self.source.block(f"if {' and '.join(conditions)}:"):
            if arrays:
                self.packed_run(pieces, lengths)
            else:
                self.packed(pieces)
        with self.source.block("else:"):
            self.one_by_one(pieces)

    def packed(self, pieces: list[_Piece]) -> None:
        formats = "".join(piece.formats for piece in pieces)
        if formats == "B":
            self.source.add(f"{self.out}.append({pieces[0].expression})")
            return
        arguments = ", ".join(piece.expression for piece in pieces)
        self.source.add(f"{self.out} += {self.source.method(formats, 'pack')}({arguments})")

    def packed_run(self, pieces: list[_Piece], lengths: list[str]) -> None:
        template = ">" + "".join(f"%d{piece.formats}" if piece.array else piece.formats for piece in pieces)
        run = self.source.constant("run", _Run(template))
        shape, packer = self.source.name("k"), self.source.name("p")
        arguments = ", ".join("*" + piece.array if piece.array else piece.expression for piece in pieces)
        self.source.add(
            f"{shape} = ({', '.join(lengths)},)",
            f"{packer} = {run}.get({shape}) or {run}.learn({shape})",
            f"{self.out} += {packer}({arguments})",
        )

    def one_by_one(self, pieces: list[_Piece]) -> None:
        fixed: list[_Piece] = []
        for piece in pieces:
            if not piece.varint and not piece.array:
                fixed.append(piece)
                continue
            if fixed:
                self.packed(fixed)
                fixed = []
            if piece.varint:
                self.source.add(f"write_varint({self.out}, {piece.expression})")
            else:
                self.source.add(f"{self.out} += pack(f'>{{len({piece.array})}}{piece.formats}', *{piece.array})")
        if fixed:
            self.packed(fixed)


class _Run(dict[tuple[int, ...], Callable[..., bytes]]):
    """The packers of one run of fields and integer arrays, cached by the lengths of the arrays."""

    def __init__(self, template: str) -> None:
        self.template = template

    def learn(self, shape: tuple[int, ...]) -> Callable[..., bytes]:
        if len(self) >= RUN_SHAPES_MAX:
            self.clear()
        packer = self[shape] = Struct(self.template % shape).pack
        return packer


def _write_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


_NAMESPACE: dict[str, object] = {"pack": pack, "write_varint": _write_varint}
