"""Element types: what their bits mean, how they are stored, and how two of them promote."""

from __future__ import annotations

import enum
import sys
from typing import Any

import numpy as np


class DALIDataType(enum.IntEnum):
    """Numeric ids of element types, equal to those of ``nvidia.dali.types.DALIDataType``."""

    NO_TYPE = -1
    UINT8 = 0
    UINT16 = 1
    UINT32 = 2
    UINT64 = 3
    INT8 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    FLOAT16 = 8
    FLOAT = 9
    FLOAT64 = 10
    BOOL = 11
    STRING = 12
    FEATURE = 17
    IMAGE_TYPE = 20
    DATA_TYPE = 21
    INTERP_TYPE = 22
    TENSOR_LAYOUT = 23
    PYTHON_OBJECT = 24


class DALIImageType(enum.IntEnum):
    """Colour spaces, equal to those of ``nvidia.dali.types.DALIImageType``."""

    RGB = 0
    BGR = 1
    GRAY = 2
    YCbCr = 3
    ANY_DATA = 4


class DALIInterpType(enum.IntEnum):
    """Interpolation kinds, equal to those of ``nvidia.dali.types.DALIInterpType``."""

    INTERP_NN = 0
    INTERP_LINEAR = 1
    INTERP_CUBIC = 2
    INTERP_LANCZOS3 = 3
    INTERP_TRIANGULAR = 4
    INTERP_GAUSSIAN = 5


def _enum_eq(self: enum.IntEnum, other: object) -> bool:
    # Upstream's enums are other classes with the same names; their members count as equal.
    if type(other).__name__ == type(self).__name__:
        return getattr(other, "name", None) == self.name
    return isinstance(other, int) and not isinstance(other, enum.Enum) and int(self) == other


def _enum_ne(self: enum.IntEnum, other: object) -> bool:
    return not _enum_eq(self, other)


for _cls in (DALIDataType, DALIImageType, DALIInterpType):
    _cls.__eq__ = _enum_eq  # type: ignore[method-assign,assignment]
    _cls.__ne__ = _enum_ne  # type: ignore[method-assign,assignment]
    _cls.__hash__ = lambda self: hash(int(self))  # type: ignore[method-assign]


class DType:
    """An element type.

    >>> import ndd
    >>> ndd.float32.bits, ndd.float32.kind.name, str(ndd.float32)
    (32, 'float', 'f32')
    """

    class Kind(enum.Enum):
        """What the bits of an element mean."""

        signed = 1
        unsigned = 2
        float = 3
        bool = 4
        enum = 5

        def __repr__(self) -> str:
            return str(self)

    def __init__(
        self,
        kind: DType.Kind,
        bits: int,
        exponent_bits: int | None = None,
        significand_bits: int | None = None,
        bytes: int | None = None,
        type_id: DALIDataType | None = None,
        name: str | None = None,
        docs: str | None = None,
    ) -> None:
        self.np: np.dtype[Any]
        self.kind = kind
        self.bits = bits
        self.exponent_bits = exponent_bits
        self.significand_bits = significand_bits
        self.bytes = bytes if bytes is not None else (bits + 7) // 8
        self.type_id = type_id
        self.name = name or f"{kind.name[0]}{bits}"
        self.__doc__ = docs
        self.is_float = kind is DType.Kind.float
        self.is_integer = kind in (DType.Kind.signed, DType.Kind.unsigned)
        self.is_enum = kind is DType.Kind.enum  # kernels never see these: they work on int32
        # The NumPy type that stores it; bfloat16 has none and is stored in 16-bit words.
        self.np = np.dtype(_STORAGE.get(self.name, np.int32))
        self._hash = hash(self._key())

    def __call__(self, value: Any) -> Any:
        raise TypeError(
            f"a DType is not a conversion function; use ndd.tensor(value, dtype=ndd.{self}) "
            f"or ndd.cast(value, dtype=...)"
        )

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, DType):
            return self._key() == other._key()
        if type(other).__name__ == "DALIDataType":
            return self.type_id is not None and self.type_id == other
        return False

    def _key(self) -> tuple[Any, ...]:
        return (self.kind, self.bits, self.exponent_bits, self.significand_bits, self.type_id)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        text = f"DType(kind=Kind.{self.kind.name}, bits={self.bits}"
        if self.exponent_bits is not None:
            text += (
                f", exponent_bits={self.exponent_bits}, significand_bits={self.significand_bits}"
            )
        return text + ")"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        if _BY_NAME.get(self.name) is self:
            return (DType.parse, (self.name,))
        return (DType, (self.kind, self.bits, self.exponent_bits, self.significand_bits, self.bytes,
                        self.type_id, self.name, self.__doc__))  # fmt: skip

    @staticmethod
    def from_fw_type(numpy_type: Any) -> DType:
        """The DType of a NumPy or torch type."""
        found = _from_framework(numpy_type)
        if found is None:
            raise TypeError(f"{numpy_type!r} is not an element type that ndd knows")
        return found

    @staticmethod
    def from_type_id(type_id: Any) -> DType:
        """The DType of a legacy ``nvidia.dali.types`` id."""
        found = _BY_ID.get(int(getattr(type_id, "value", type_id)))
        if found is None:
            raise TypeError(f"type id {type_id} has no element type in ndd")
        return found

    @staticmethod
    def parse(name: str) -> DType:
        """The DType of a short (``"u8"``) or long (``"uint8"``) name."""
        found = _BY_NAME.get(name)
        if found is None:
            raise ValueError(f"unknown element type {name!r}; known: {', '.join(NUMERIC_NAMES)}")
        return found


_STORAGE = {
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "bool": np.bool_, "bfloat16": np.uint16,
}  # fmt: skip

_K = DType.Kind
_ID = DALIDataType


def _unsigned(bits: int) -> DType:
    number = DALIDataType.__members__[f"UINT{bits}"]
    docs = f"{bits}-bit unsigned integer"
    return DType(_K.unsigned, bits, type_id=number, name=f"u{bits}", docs=docs)


def _signed(bits: int) -> DType:
    number = DALIDataType.__members__[f"INT{bits}"]
    docs = f"{bits}-bit signed integer"
    return DType(_K.signed, bits, type_id=number, name=f"i{bits}", docs=docs)


uint8, uint16, uint32, uint64 = (_unsigned(b) for b in (8, 16, 32, 64))
int8, int16, int32, int64 = (_signed(b) for b in (8, 16, 32, 64))
float16 = DType(_K.float, 16, 5, 10, type_id=_ID.FLOAT16, name="f16", docs="IEEE half precision")
float32 = DType(_K.float, 32, 8, 23, type_id=_ID.FLOAT, name="f32", docs="IEEE single precision")
float64 = DType(_K.float, 64, 11, 52, type_id=_ID.FLOAT64, name="f64", docs="IEEE double precision")
bfloat16 = DType(_K.float, 16, 8, 7, name="bfloat16", docs="float32 cut to its upper 16 bits")
bool_ = DType(_K.bool, 8, type_id=_ID.BOOL, name="bool", docs="Boolean value")
DataType = DType(_K.enum, 32, type_id=_ID.DATA_TYPE, name="DataType", docs="An element type")
ImageType = DType(_K.enum, 32, type_id=_ID.IMAGE_TYPE, name="ImageType", docs="A colour space")
InterpType = DType(_K.enum, 32, type_id=_ID.INTERP_TYPE, name="InterpType", docs="A filter")

NUMERIC = (
    uint8, uint16, uint32, uint64, int8, int16, int32, int64,
    float16, float32, float64, bfloat16, bool_,
)  # fmt: skip
NUMERIC_NAMES = tuple(t.name for t in NUMERIC)
_ENUM_TYPES = (DataType, ImageType, InterpType)

_BY_NAME = {t.name: t for t in (*NUMERIC, *_ENUM_TYPES)}
_BY_NAME |= {t.np.name: t for t in NUMERIC if t is not bfloat16}
_BY_NAME |= {"bf16": bfloat16, "half": float16, "float": float32, "double": float64, "int": int32}
_BY_ID = {int(t.type_id): t for t in (*NUMERIC, *_ENUM_TYPES) if t.type_id is not None}
_BY_NUMPY = {t.np: t for t in NUMERIC if t is not bfloat16}
_CANONICAL = {t: t for t in (*NUMERIC, *_ENUM_TYPES)}
_BY_PYTHON = {bool: bool_, int: int32, float: float32}


_MEMBERS: dict[DType, type[enum.IntEnum]] = {
    DataType: DALIDataType, ImageType: DALIImageType, InterpType: DALIInterpType
}  # fmt: skip
_ENUM_DTYPES = {members.__name__: t for t, members in _MEMBERS.items()}


def enum_type(value: Any) -> DType | None:
    """The element type of an enum member, ours or upstream's; None for all other values."""
    return _ENUM_DTYPES.get(type(value).__name__)


def member(dtype: DType, number: int) -> int:
    """The enum member with a number, or the number itself if there is none."""
    known = _MEMBERS[dtype]
    return known(number) if number in known._value2member_map_ else number


def from_numpy(np_dtype: Any) -> DType | None:
    """The DType of a NumPy dtype (of any byte order), or None."""
    found = _BY_NUMPY.get(np_dtype if np_dtype.isnative else np_dtype.newbyteorder("="))
    if found is None and getattr(np_dtype, "name", "") == "bfloat16":
        return bfloat16
    return found


def _from_framework(obj: Any) -> DType | None:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.dtype):
        return _BY_NAME.get(str(obj).removeprefix("torch."))
    if obj is None:  # np.dtype(None) would be float64
        return None
    try:
        return from_numpy(np.dtype(obj))
    except (TypeError, ValueError):  # ValueError: the object has a `dtype` of another library
        return None


def dtype(*args: Any) -> DType:
    """Convert a name, a NumPy or torch type, a Python type or a legacy id to a DType.

    >>> import ndd, numpy as np
    >>> ndd.dtype("uint8") is ndd.dtype(np.uint8) is ndd.uint8
    True
    """
    if len(args) != 1:
        return DType(*args)
    obj = args[0]
    if isinstance(obj, DType):
        # Our code compares types by identity, so replace an equal type by our object.
        return _CANONICAL.get(obj, obj)
    if isinstance(obj, str):
        return DType.parse(obj)
    if isinstance(obj, type) and obj in _BY_PYTHON:
        return _BY_PYTHON[obj]
    if type(obj).__name__ == "DALIDataType":
        return DType.from_type_id(obj)
    return DType.from_fw_type(obj)


as_dtype = dtype  # for functions that have a parameter of that name


def type_id(dtype: Any) -> DALIDataType:
    """The legacy id of an element type.

    >>> import ndd
    >>> ndd.type_id(ndd.float32).name
    'FLOAT'
    """
    known = as_dtype(dtype)
    if known.type_id is None:
        raise TypeError(f"{known} has no legacy type id")
    return known.type_id


def promote(a: DType, b: DType) -> DType:
    """Result type of arithmetic on two element types.

    Two types of one kind give the wider one. A float and an integer give the float. A signed and an
    unsigned type give the next wider signed type, up to 64 bits.
    """
    if a is b or a == b:
        return a
    if a is bool_:
        return b
    if b is bool_:
        return a
    if a.is_float or b.is_float:
        if a.is_float and b.is_float:
            # Each of the two 16-bit formats has values that the other cannot represent.
            return float32 if a.bits == b.bits else (a if a.bits > b.bits else b)
        return a if a.is_float else b
    if a.kind is b.kind:
        return a if a.bits >= b.bits else b
    signed, unsigned = (a, b) if a.kind is DType.Kind.signed else (b, a)
    bits = signed.bits if signed.bits > unsigned.bits else min(2 * unsigned.bits, 64)
    return _BY_NAME[f"i{bits}"]
