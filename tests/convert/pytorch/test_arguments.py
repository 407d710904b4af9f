"""Arguments of operators as they are recorded."""

from __future__ import annotations

import pytest

from armillary.convert.pytorch.arguments import element_bytes

BYTES = {
    1: ("signed char", "unsigned char", "Char", "Byte", "bool", "c10::Float8_e4m3fn", "Float8_e5m2", "UInt8"),
    2: ("c10::BFloat16", "BFloat16", "c10::Half", "Half", "short", "unsigned short", "short int", "Short"),
    4: ("float", "Float", "int", "unsigned int", "Int", "torch.float32", "c10::complex<c10::Half>"),
    8: ("long int", "long", "unsigned long", "long long", "Long", "double", "c10::complex<float>"),
    16: ("c10::complex<double>", "ComplexDouble"),
    0: ("", "None", "TensorList", "Scalar", "mine"),
}


@pytest.mark.parametrize(("size", "name"), [(size, name) for size, names in BYTES.items() for name in names])
def test_bytes_of_a_dtype(size: int, name: str) -> None:
    assert element_bytes(name) == size
