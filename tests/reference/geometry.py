"""NumPy reference of the exact-geometry operators, one function per operator.

Every function takes plain arrays plus a layout string (or None) and returns
``(array, layout)``.  `pad` works on a list of samples because its natural extent
is the maximum over the batch.  Errors are RuntimeError unless noted.
"""

import numpy as np

F32 = np.float32

FLIP_LAYOUTS = ["FDHWC", "FHWC", "DHWC", "HWC", "FCDHW", "FCHW", "CDHW", "CHW"]
CROP_LAYOUTS = ["HWC", "CHW", "DHWC", "CDHW", "FHWC", "FCHW", "CFHW", "FDHWC", "FCDHW", "CFDHW"]
SLICE_DEFAULT_LAYOUTS = {2: "HW", 3: "HWC", 4: "DHWC"}


def round_half_away(v):
    """C `round` of a double."""
    v = float(v)
    whole = np.floor(abs(v))
    whole += abs(v) - whole >= 0.5
    return int(whole if v >= 0 else -whole)


def allowed_layout(ndim, layout, allowed):
    """A missing layout becomes the first allowed one of that rank (ValueError if none fits)."""
    if layout:
        if layout not in allowed:
            raise ValueError(f'The layout "{layout}" does not match any of the allowed layouts')
        return layout
    for candidate in allowed:
        if len(candidate) == ndim:
            return candidate
    raise ValueError(f"The number of dimensions {ndim} does not match any of the allowed layouts")


def c_cast_fill(value, dtype):
    """Fill values: f32, then a C cast; integers truncate and wrap, they do not saturate."""
    dtype = np.dtype(dtype)
    value = F32(value)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return dtype.type(value)
    if dtype.kind == "b":
        return dtype.type(value != 0)
    if not np.isfinite(value):
        value = F32(0) if dtype.itemsize < 4 else F32(-(2.0 ** (8 * dtype.itemsize - 1)))
    whole = int(value)
    if dtype.kind == "i" and dtype.itemsize >= 4:
        bits = 8 * dtype.itemsize - 1
        if not -(2**bits) <= whole < 2**bits:
            whole = -(2**bits)  # what x86 conversion instructions return
    return np.array(whole % 2 ** (8 * dtype.itemsize), np.uint64).astype(dtype)[()]


def convert_truncating(x, dtype):
    """dtype= of crop and slice: truncate, saturate (f16 and f32 as well), integer NaN -> 0."""
    dtype = np.dtype(dtype)
    if dtype == x.dtype:
        return x
    if dtype.kind == "f":
        if x.dtype.kind == "f" and x.dtype.itemsize <= dtype.itemsize:
            return x.astype(dtype)
        top = np.finfo(dtype).max
        x = np.clip(x, -np.finfo(F32).max, np.finfo(F32).max) if x.dtype == np.float64 else x
        return np.clip(x.astype(F32), -top, top).astype(dtype)  # f64 goes through f32
    info = np.iinfo(dtype)
    if x.dtype.kind == "f":
        x = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=info.max, neginf=info.min)
    return np.clip(x, info.min, info.max).astype(dtype)


# ---------------------------------------------------------------- flip


def flip(x, layout=None, horizontal=1, vertical=0, depthwise=0):
    layout = allowed_layout(x.ndim, layout, FLIP_LAYOUTS)
    if x.dtype in (np.float16, np.bool_) and (horizontal or vertical or depthwise):
        raise RuntimeError(f"The element type {x.dtype} is not supported.")
    names = [n for n, on in zip("WHD", (horizontal, vertical, depthwise)) if on and n in layout]
    return np.flip(x, [layout.index(n) for n in names]).copy(), layout


# ---------------------------------------------------------------- crop and slice


def window(x, layout, anchor, shape, policy="error", fill_values=0.0, dtype=None):
    """Copies the box anchor..anchor+shape, one entry per axis."""
    dtype = np.dtype(dtype or x.dtype)
    if x.dtype == np.bool_ or dtype not in (x.dtype, np.uint8, np.float16, np.float32):
        raise RuntimeError("Not supported input or output type")
    if not 1 <= x.ndim <= 4:
        raise RuntimeError(f"Not supported number of dimensions: {x.ndim}")
    start, end = np.array(anchor), np.array(anchor) + np.array(shape)
    lo, hi = np.clip(start, 0, x.shape), np.clip(end, 0, x.shape)
    if policy == "error" and ((start < 0) | (end > x.shape)).any():
        raise RuntimeError("Slice can't be placed out of bounds with current policy.")
    inside = convert_truncating(x[tuple(map(slice, lo, hi))], dtype)
    if policy != "pad":
        return inside
    fill = [c_cast_fill(v, dtype) for v in np.atleast_1d(fill_values)] or [c_cast_fill(0, dtype)]
    out = np.full(shape, fill[0], dtype)
    if len(fill) > 1:
        channel = layout.find("C") if layout else -1
        if channel < 0:
            raise RuntimeError("channel dimension could not be found in layout")
        if len(fill) != out.shape[channel]:
            raise RuntimeError("Multi-channel fill value does not match the number of channels")
        np.moveaxis(out, channel, -1)[...] = fill
    if inside.size:
        out[tuple(map(slice, lo - start, hi - start))] = inside
    return out


def crop(
    x,
    layout=None,
    crop=None,
    crop_w=None,
    crop_h=None,
    crop_d=None,
    crop_pos_x=0.5,
    crop_pos_y=0.5,
    crop_pos_z=0.5,
    rounding="round",
    out_of_bounds_policy="error",
    fill_values=0.0,
    dtype=None,
):
    layout = allowed_layout(x.ndim, layout, CROP_LAYOUTS)
    if (crop_w is None) != (crop_h is None):
        raise RuntimeError("`crop_w` and `crop_h` arguments must be provided together")
    if crop_d is not None and crop_w is None:
        raise RuntimeError("`crop_d` must be provided together with `crop_w` and `crop_h`")
    if crop is not None:
        if crop_w is not None:
            raise RuntimeError("`crop` is not compatible with `crop_h`, `crop_w`, `crop_d`")
        if not 2 <= len(crop) <= 3:
            raise RuntimeError("`crop` argument should have 2 or 3 elements")
        crop_h, crop_w = crop[-2:]
        crop_d = crop[0] if len(crop) == 3 else None
    size = {"W": crop_w, "H": crop_h, "D": crop_d}
    position = {"W": crop_pos_x, "H": crop_pos_y, "D": crop_pos_z}
    anchor, shape = [0] * x.ndim, list(x.shape)
    for axis, name in enumerate(layout):
        if name == "F" and "D" not in layout:
            name = "D"  # frames take the depth arguments
        if name not in size:
            continue
        pos = F32(position[name])
        if not 0 <= pos <= 1:
            raise RuntimeError(f"Anchor for dimension {axis} ({pos:f}) is out of range [0.0, 1.0]")
        if size[name] is not None and int(F32(size[name])) > 0:
            shape[axis] = int(F32(size[name]))
        place = float(pos) * (x.shape[axis] - shape[axis])  # double product of an f32 position
        anchor[axis] = round_half_away(place) if rounding == "round" else int(place)
    return window(x, layout, anchor, shape, out_of_bounds_policy, fill_values, dtype), layout


def resolve_axes(ndim, layout, axes, axis_names):
    """Negative axes count from the back; an empty list means all axes."""
    if axes is None and axis_names is not None:
        for name in axis_names:
            if not layout or name not in layout:
                raise RuntimeError(f"Axis '{name}' is not present in the input layout")
        axes = [layout.index(name) for name in axis_names]
    axes = list(axes) if axes is not None and len(axes) else list(range(ndim))
    for a in axes:
        if not -ndim <= a < ndim:
            raise RuntimeError(f"Axis {a} out of range. Expected range is [{-ndim}, {ndim - 1}]")
    axes = [a % ndim for a in axes]
    if len(set(axes)) != len(axes):
        raise RuntimeError("Axis index occurs more than once in ``axes``")
    return axes


def _named_bounds(extent, start, rel_start, end, rel_end, shape, rel_shape):
    """Unrounded (start, end) in double; products with the extent are taken in f32."""
    scaled = lambda v: float(F32(v) * F32(extent))
    s = scaled(rel_start) if rel_start is not None else float(start if start is not None else 0)
    if end is not None:
        return s, float(end)
    if rel_end is not None:
        return s, scaled(rel_end)
    length = shape if shape is not None else rel_shape and scaled(rel_shape)
    if length is None:
        return s, float(extent)
    if length < 0:
        raise RuntimeError(f"shape value out of range [0, 9.22337e+18]. Got: {length:g}")
    if rel_start is not None and rel_shape is not None:  # the only sum taken before scaling
        return s, (float(F32(rel_start)) + float(F32(rel_shape))) * extent
    return s, s + float(length)


def _positional_bounds(extent, anchor, shape, norm_anchor, norm_shape):
    """Everything in double; integer arguments are absolute whatever the flags say."""
    if np.asarray(anchor).dtype.kind in "iu":
        return float(anchor), float(anchor) + float(shape)
    a, s = float(F32(anchor)), float(F32(shape))
    if norm_anchor and norm_shape:
        return a * extent, (a + s) * extent
    a = a * extent if norm_anchor else a
    return a, a + (s * extent if norm_shape else s)


def slice_(
    x,
    layout=None,
    anchor=None,
    shape_input=None,
    *,
    axes=None,
    axis_names=None,
    start=None,
    rel_start=None,
    end=None,
    rel_end=None,
    shape=None,
    rel_shape=None,
    normalized_anchor=True,
    normalized_shape=True,
    out_of_bounds_policy="error",
    fill_values=0.0,
    dtype=None,
):
    named = dict(
        start=start, rel_start=rel_start, end=end, rel_end=rel_end, shape=shape, rel_shape=rel_shape
    )
    given = [k for k, v in named.items() if v is not None]
    if anchor is not None and given:
        raise RuntimeError("Named arguments are not compatible with positional inputs")
    if (anchor is None or shape_input is None) and not given:
        raise RuntimeError("Expected named slice arguments or positional inputs")
    if len({"start", "rel_start"} & set(given)) > 1 or len(set(given) - {"start", "rel_start"}) > 1:
        raise RuntimeError("arguments are mutually exclusive")
    if axes is not None and axis_names is not None:
        raise RuntimeError('"axes" and "axis_names" are mutually exclusive')
    names = layout or SLICE_DEFAULT_LAYOUTS.get(x.ndim)
    if axes is None and axis_names is None:
        axis_names = "WH"
    axes = resolve_axes(x.ndim, names, axes, axis_names)

    def entry(values, i):  # named arguments broadcast a single value over the axes
        values = np.atleast_1d(values)
        if len(values) not in (1, len(axes)):
            raise RuntimeError("wrong number of values")
        return values[i if len(values) > 1 else 0]

    if anchor is not None and not np.size(anchor) == np.size(shape_input) == len(axes):
        raise RuntimeError(f"Expected {len(axes)} elements for slice arguments (start/shape).")
    first, lengths = [0] * x.ndim, list(x.shape)
    for i, axis in enumerate(axes):
        if anchor is not None:
            s, e = _positional_bounds(
                x.shape[axis],
                np.atleast_1d(anchor)[i],
                np.atleast_1d(shape_input)[i],
                normalized_anchor,
                normalized_shape,
            )
        else:
            s, e = _named_bounds(
                x.shape[axis], **{k: None if v is None else entry(v, i) for k, v in named.items()}
            )
        if not e >= s:
            raise RuntimeError("end coordinates can't be before start coordinates.")
        first[axis] = round_half_away(s)
        lengths[axis] = round_half_away(e) - first[axis]
    out = window(x, names, first, lengths, out_of_bounds_policy, fill_values, dtype)
    return out, layout


# ---------------------------------------------------------------- indexing


def getitem(x, layout, index):
    """Tensor.__getitem__ and, per sample, Batch.slice: scalar indices, slices, one Ellipsis."""
    index = index if isinstance(index, tuple) else (index,)
    index = tuple(slice(None) if i is None else i for i in index)  # None acts like ':'
    out = x[index].copy() if isinstance(x[index], np.ndarray) else x[index]
    dots = [k for k, i in enumerate(index) if i is Ellipsis]
    if dots:
        k, missing = dots[0], x.ndim - (len(index) - 1)
        index = index[:k] + (slice(None),) * missing + index[k + 1 :]
    index += (slice(None),) * (x.ndim - len(index))
    kept = "".join(n for n, i in zip(layout or "", index) if isinstance(i, slice))
    return out, kept or None


# ---------------------------------------------------------------- pad


def pad(samples, layout=None, axes=None, axis_names=None, shape=None, align=None, fill_value=0.0):
    """`shape`, `align`: one value or one per axis; a list of such lists is per sample."""
    if samples[0].dtype == np.float64:
        raise RuntimeError("Unsupported data type: double")
    if samples[0].ndim == 0:
        raise RuntimeError("Unsupported number of dimensions 0")
    axes = resolve_axes(samples[0].ndim, layout, axes, axis_names)
    largest = np.max([s.shape for s in samples], axis=0)

    def entries(values, k):
        values = np.asarray(values)
        values = values[k] if values.ndim == 2 else np.atleast_1d(values)
        return np.broadcast_to(values, len(axes))

    out = []
    for k, x in enumerate(samples):
        extents = list(x.shape)
        wanted = entries(-1 if shape is None else shape, k)
        multiple = entries(1 if align is None else align, k)
        if (multiple <= 0).any():
            raise RuntimeError("Values of `align` argument must be positive.")
        for axis, want, m in zip(axes, wanted, multiple):
            want = want if want > 0 else largest[axis]
            extents[axis] = int(-(-max(x.shape[axis], want) // m) * m)
        y = np.full(extents, c_cast_fill(fill_value, x.dtype), x.dtype)
        y[tuple(map(slice, x.shape))] = x
        out.append(y)
    return out, layout


# ---------------------------------------------------------------- axes and shapes


def transpose(x, layout=None, perm=None, transpose_layout=True, output_layout=None):
    perm = list(range(x.ndim))[::-1] if perm is None else list(perm)
    if sorted(perm) != list(range(len(perm))):
        raise RuntimeError("Invalid permutation: sorted `perm` is not equal to [0, ..., n-1].")
    if len(perm) != x.ndim:
        raise RuntimeError("Input has different dimensionality than the length of the permutation")
    if output_layout is not None:
        if len(output_layout) != x.ndim or not output_layout:
            raise RuntimeError("bad output layout")
        layout = output_layout
    elif transpose_layout and layout:
        layout = "".join(layout[p] for p in perm)
    return x.transpose(perm).copy(), layout


def _check_joinable(arrays):
    if len({(a.dtype, a.ndim) for a in arrays}) != 1:
        raise RuntimeError("All inputs must have the same type and number of dimensions.")


def stack(arrays, layout=None, axis=0, axis_name=None):
    """`layout` is that of the first input; the result has one only if axis_name is given."""
    _check_joinable(arrays)
    ndim = arrays[0].ndim
    if not -ndim <= axis <= ndim:
        raise RuntimeError(f"Invalid axis argument, {axis} for {ndim}-D tensors.")
    if len({a.shape for a in arrays}) != 1:
        raise RuntimeError("Tensor stacking requires that all tensors are of equal shape.")
    axis += (ndim + 1) * (axis < 0)
    out = np.stack(arrays, axis)
    if axis_name is None:
        return out, None
    if len(axis_name) != 1:
        raise RuntimeError("``axis_name`` must be a single character")
    if ndim and not layout:
        raise RuntimeError("``axis_name`` with non-scalar input requires a non-empty input layout.")
    layout = layout or ""
    return out, layout[:axis] + axis_name + layout[axis:]


def cat(arrays, layout=None, axis=None, axis_name=None):
    """`layout` is that of the first input and is kept."""
    _check_joinable(arrays)
    if axis is not None and axis_name is not None:
        raise RuntimeError("Arguments ``axis`` and ``axis_name`` cannot be used together.")
    if axis_name is not None:
        axis = layout.find(axis_name) if layout and len(axis_name) == 1 else -1
        if axis < 0:
            raise RuntimeError("``axis_name`` specifies an undefined axis")
    axis, ndim = axis or 0, arrays[0].ndim
    if not -ndim <= axis < ndim:
        raise RuntimeError(f"Invalid axis argument, {axis} for {ndim}-D tensors.")
    filled = [a for a in arrays if a.size] or arrays[:1]  # empty inputs are skipped unchecked
    others = {tuple(np.delete(a.shape, axis)) for a in filled}
    if len(others) != 1:
        raise RuntimeError("Concatenated tensors can differ in size only in the concatenation axis")
    return np.concatenate(filled, axis), layout


def _output_layout(old_layout, old_ndim, new_ndim, layout):
    if layout is None:
        return old_layout if new_ndim == old_ndim else None
    if layout and len(layout) != new_ndim:
        raise RuntimeError(
            f"Requested layout '{layout}' is not compatible with a {new_ndim}D shape"
        )
    return layout or None


def reinterpret(
    x, old_layout=None, shape=None, rel_shape=None, src_dims=None, layout=None, dtype=None
):
    """Any negative extent is the wildcard; shapes count elements of the output type."""
    if all(v is None for v in (shape, rel_shape, src_dims, layout, dtype)):
        raise RuntimeError("no-op: arguments specify neither new shape, layout nor type.")
    if shape is not None and rel_shape is not None:
        raise RuntimeError("`shape` and `rel_shape` are mutually exclusive")
    out_dtype = np.dtype(dtype or x.dtype)
    for d in src_dims if src_dims is not None else []:
        if not -1 <= d < x.ndim:
            raise RuntimeError(f"`src_dims` entry {d} is out of bounds.")
    if shape is not None:
        extents = [int(v) for v in np.atleast_1d(shape)]
        if 0 in extents:
            raise RuntimeError("Extent of 0 is illegal")
    elif rel_shape is not None:
        rel = np.atleast_1d(np.asarray(rel_shape, F32))
        if src_dims is not None and len(src_dims) != len(rel):
            raise RuntimeError("`src_dims` and `rel_shape` have different lengths")
        extents = []
        for i, r in enumerate(rel):
            if r == 0:
                raise RuntimeError("Extent of 0 is illegal")
            if r < 0:
                extents.append(-1)
                continue
            source = i if src_dims is None else src_dims[i]
            if source >= x.ndim:
                raise RuntimeError("`rel_shape` has more elements than there are dimensions")
            extents.append(round_half_away(r * F32(1 if source < 0 else x.shape[source])))
    else:
        extents = list(x.shape)
        if src_dims is not None:
            extents = [1 if d < 0 else x.shape[d] for d in src_dims]
            if np.prod(extents) != x.size:
                raise RuntimeError("The volume of the new shape should match the original.")
            if len(extents) != x.ndim:  # quirk of the original
                raise ValueError("Unexpected dimensionality of output 0.")
        if extents:
            inner = extents[-1] * x.dtype.itemsize
            if inner % out_dtype.itemsize:
                raise RuntimeError("The size of the innermost dimension is not divisible")
            extents[-1] = inner // out_dtype.itemsize
    wild = [i for i, e in enumerate(extents) if e < 0]
    if len(wild) > 1:
        raise RuntimeError("Only one negative extent is allowed")
    if wild:
        rest = int(np.prod([e for e in extents if e >= 0]))
        if not rest:
            raise RuntimeError("Cannot infer the extent")
        extents[wild[0]] = x.nbytes // out_dtype.itemsize // rest
    if int(np.prod(extents)) * out_dtype.itemsize != x.nbytes:
        raise RuntimeError("Input and output samples must occupy the same size in bytes.")
    out = np.frombuffer(x.tobytes(), out_dtype).reshape(extents)
    return out, _output_layout(old_layout, x.ndim, len(extents), layout)


def reshape(x, old_layout=None, shape=None, rel_shape=None, src_dims=None, layout=None):
    return reinterpret(x, old_layout, shape, rel_shape, src_dims, layout)


def squeeze(x, layout=None, axes=None, axis_names=None):
    if (axes is None) == (axis_names is None):
        raise RuntimeError("Exactly one of ``axes`` and ``axis_names`` is needed.")
    if axes is None:
        if any(n not in (layout or "") for n in axis_names):
            raise RuntimeError("Axis is not present in the input layout")
        axes = [layout.index(n) for n in axis_names]
    if len(set(axes)) != len(axes):
        raise RuntimeError("Specified at least twice same dimension to remove.")
    if min(axes, default=0) < 0:
        axes = []  # quirk: one negative axis turns the call into a no-op; too large ones are ignored
    shape = [e for i, e in enumerate(x.shape) if i not in axes]
    if np.prod(shape) != x.size:
        raise RuntimeError("The volume of the new shape should match the original.")
    layout = "".join(n for i, n in enumerate(layout or "") if i not in axes) or None
    return x.reshape(shape), layout


def expand_dims(x, layout=None, axes=(), new_axis_names=None):
    """`axes` are positions in the output; without names for them the layout is lost."""
    if any(a < 0 for a in axes):
        raise RuntimeError("Axis value can't be negative")
    if len(set(axes)) != len(axes):
        raise RuntimeError("Duplicate axis index found.")
    if any(a >= x.ndim + len(axes) for a in axes):
        raise RuntimeError("Data has not enough dimensions to add new axes at specified indices.")
    if new_axis_names and len(new_axis_names) != len(axes):
        raise RuntimeError("One new axis name per new axis is needed")
    if new_axis_names is not None and x.ndim and not layout:
        raise RuntimeError("Specifying ``new_axis_names`` requires an input with a proper layout.")
    out = np.expand_dims(x, tuple(axes)) if len(axes) else x
    if not len(axes):
        return out, layout
    if not new_axis_names:
        return out, None
    names, old = dict(zip(axes, new_axis_names)), iter(layout or "")
    return out, "".join(names[i] if i in names else next(old) for i in range(out.ndim))
