"""experimental.readers.Fits: arrays as astropy reads them, damaged files. (The oracle needs CUDA.)"""

from __future__ import annotations

import numpy as np
import pytest
from astropy.io import fits

import ndd
from tests.readers.datasets import fits_header, fits_image

Fits = ndd.experimental.readers.Fits


def arrays(**options):
    return [[np.asarray(t) for t in item] for item in Fits(**options).next_epoch()]


def test_arrays_equal_astropys(tmp_path):
    rng = np.random.default_rng(1)
    path = tmp_path / "a.fits"
    for code in ("u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"):
        for shape in ((5,), (2, 3), (4, 3, 2), (1000, 3)):
            kind = np.dtype(code)
            if kind.kind == "f":
                array = rng.normal(size=shape).astype(kind)
            else:
                limits = np.iinfo(kind)
                array = rng.integers(limits.min, limits.max, shape, kind, endpoint=True)
            hdus = [fits.PrimaryHDU(array), fits.ImageHDU(array[::-1].copy())]
            fits.HDUList(hdus).writeto(path, overwrite=True)
            ((first, second),) = arrays(files=path, hdu_indices=[1, 2])
            assert first.dtype == second.dtype == kind
            np.testing.assert_array_equal(first, array)
            np.testing.assert_array_equal(second, array[::-1])
    ((only,),) = arrays(files=path)  # the first HDU after the primary one
    np.testing.assert_array_equal(only, array[::-1])


def test_scaled_arrays_equal_astropys(tmp_path):
    for code, scale, zero in (
        ("i2", 0.5, 3.0),
        ("i4", 2.0, -1.0),
        ("u1", 0.1, 0.0),
        ("i2", 1.0, 7.0),
    ):
        hdu = fits.PrimaryHDU(np.arange(12).reshape(3, 4).astype(code))
        hdu.header["BSCALE"], hdu.header["BZERO"] = scale, zero
        hdu.writeto(tmp_path / "a.fits", overwrite=True)
        wanted = fits.getdata(tmp_path / "a.fits")
        ((got,),) = arrays(files=tmp_path / "a.fits", hdu_indices=1)
        assert got.dtype == wanted.dtype.newbyteorder("=")
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_tables_lie_between_images(tmp_path):
    table = fits.BinTableHDU.from_columns(
        [fits.Column("a", "PJ()", array=np.array([[1], [2, 3]], object))]
    )
    image = fits.ImageHDU(np.arange(6, dtype="f4"))
    packed = fits.CompImageHDU(np.arange(100, dtype="i2").reshape(10, 10))
    fits.HDUList([fits.PrimaryHDU(), table, image, packed]).writeto(tmp_path / "a.fits")
    ((got,),) = arrays(files=tmp_path / "a.fits", hdu_indices=3)
    np.testing.assert_array_equal(got, np.arange(6))
    for hdu, text in (
        (1, "the HDU at offset 0 has no data"),
        (2, "the HDU at offset 2880 is no image but 'BINTABLE'"),
        (4, "is compressed, which is not supported"),
        (5, "HDU 5 is wanted, but there are 4"),
    ):
        with pytest.raises(ValueError, match=f"cannot read .*a.fits' .sample 0.: .*{text}"):
            arrays(files=tmp_path / "a.fits", hdu_indices=hdu)


def test_arguments(tmp_path):
    (tmp_path / "a.fits").write_bytes(fits_image(np.arange(3, dtype="i2")))
    for options, text in (
        (dict(hdu_indices=0), "`hdu_indices` are counted from 1, got 0"),
        (dict(hdu_indices=[]), "`hdu_indices` are counted from 1"),
        (dict(hdu_indices=[1, 2], dtypes=ndd.int16), "one type for each of the 2 outputs, got 1"),
    ):
        with pytest.raises(ValueError, match=text):
            Fits(file_root=tmp_path, **options)
    assert arrays(file_root=tmp_path, hdu_indices=1, dtypes=[ndd.int16])[0][0].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="HDU 1 has elements of int16, but `dtypes` says f32"):
        arrays(file_root=tmp_path, hdu_indices=1, dtypes=ndd.float32)


GOOD = ("SIMPLE  = T", "BITPIX  = 16", "NAXIS   = 1", "NAXIS1  = 3")


def test_damaged_files(tmp_path):
    def changed(k, card):
        return fits_header(*GOOD[:k], card, *GOOD[k + 1 :]) + bytes(2880)

    for content, text in (
        (b"", "HDU 1 is wanted, but there are 0"),
        (b"x" * 2880, "not a FITS file"),
        (fits_header(*GOOD)[:-1], "the file ends inside of the header at offset 0"),
        (fits_header(*GOOD), "HDU 1 at offset 0 has 6 bytes of data, but 0 are left"),
        (fits_header(*GOOD).replace(b"END", b"   "), "the file ends inside of the header at offset 0"),
        (changed(1, "BITPIX  = 17"), "BITPIX 17 and NAXIS 1"),
        (changed(1, "BITPIX  = x"), "BITPIX of the header at offset 0 must be an integer, got 'x'"),
        (changed(2, "NAXIS   = 2"), "NAXIS2 of the header at offset 0 must be an integer, got None"),
        (changed(2, "NAXIS   = 99999"), "BITPIX 16 and NAXIS 99999"),
        (changed(3, "NAXIS1  = -3"), "has a negative extent"),
        (changed(3, "NAXIS1  = 99999999999999"), "has 199999999999998 bytes of data, but 2880 are left"),
        (changed(3, "NAXIS1  = 3") + b"y" * 2880, "no header at offset 5760"),
        (fits_header(*GOOD, "BZERO   = x") + bytes(2880), "BZERO of the header at offset 0 must be a number"),
    ):  # fmt: skip
        (tmp_path / "a.fits").write_bytes(content)
        with pytest.raises(ValueError, match=f"cannot read .*a.fits' .sample 0.: .*{text}"):
            arrays(file_root=tmp_path, hdu_indices=2 if "5760" in text else 1)


def test_on_error(tmp_path):
    (tmp_path / "a.fits").write_bytes(fits_image(np.zeros((2, 3), "f4")))
    (tmp_path / "b.fits").write_bytes(b"damaged")
    for policy, shape in (
        ("fill", (0, 0)),
        ("skip", (2, 3)),
        (lambda e: (np.ones((1, 1)),), (1, 1)),
    ):
        ((found,),) = Fits(file_root=tmp_path, hdu_indices=1, on_error=policy).next_epoch(2)
        assert found.shape == [(2, 3), shape]
