#!/usr/bin/python3
"""Every element type that an operator takes: values by `skycc run`, interpreted and compiled, against NumPy.

    tests/frontend/onnx/test_operator_types.py SKYCC
"""
import sys
import tempfile

import numpy as np
from onnx import TensorProto, numpy_helper

from operator_models import Model

OPSETS = (20, 23)  # the second for what came later than the first
F16, F32, F64, I32, I64, BOOL = (np.dtype(name) for name in ("f2", "f4", "f8", "i4", "i8", "?"))
FLOATS, INTEGERS = [F16, F32, F64], [I32, I64]
NUMBERS = FLOATS + INTEGERS
ALL = NUMBERS + [BOOL]
ONNX = {F16: TensorProto.FLOAT16, F32: TensorProto.FLOAT, F64: TensorProto.DOUBLE, I32: TensorProto.INT32,
        I64: TensorProto.INT64, BOOL: TensorProto.BOOL}

CASES = []


def case(name, types, build, reference, inputs=((2, 3),), low=-5, high=5, since=20):
    """build(model, *names) -> a name; reference(*arrays) -> its value."""
    for dtype in types:
        generator = np.random.default_rng(len(CASES))
        if dtype == BOOL:
            arrays = [generator.integers(0, 2, shape).astype(BOOL) for shape in inputs]
        elif dtype in INTEGERS:
            arrays = [generator.integers(low, high, shape).astype(dtype) for shape in inputs]
        else:
            arrays = [generator.uniform(low, high, shape).astype(dtype) for shape in inputs]
        CASES.append((f"{name}.{dtype.name}", since, dtype, arrays, build, reference))


def node(op, **attributes):
    return lambda m, *inputs: m.node(op, inputs, **attributes)


PAIR, PRODUCT = ((2, 3), (2, 3)), ((2, 3), (3, 4))


def divide(a, b):
    """Integers are truncated."""
    return a / b if a.dtype.kind == "f" else (np.sign(a) * np.sign(b) * (abs(a) // abs(b))).astype(a.dtype)


def softmax(x):
    powers = np.exp(x.astype(F64) - x.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True)).astype(x.dtype)


def standardize(x):
    x = x.astype(F64)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def root_mean_square(x):
    return x / np.sqrt((x.astype(F64) ** 2).mean(-1, keepdims=True) + 1e-5)


for op, types, function in (
    ("Neg", NUMBERS, np.negative), ("Abs", NUMBERS, np.abs), ("Sign", NUMBERS, np.sign), ("Exp", FLOATS, np.exp),
    ("Relu", NUMBERS, lambda x: np.maximum(x, 0)), ("Not", [BOOL], np.logical_not), ("IsNaN", FLOATS, np.isnan),
    ("Sin", FLOATS, np.sin), ("Cos", FLOATS, np.cos), ("Tanh", FLOATS, np.tanh), ("IsInf", FLOATS, np.isinf),
    ("Softplus", FLOATS, lambda x: np.log1p(np.exp(x))), ("Sigmoid", FLOATS, lambda x: 1 / (1 + np.exp(-x))),
    ("LeakyRelu", FLOATS, lambda x: np.where(x < 0, x * x.dtype.type(0.01), x)), ("Softmax", FLOATS, softmax),
    ("LogSoftmax", FLOATS, lambda x: np.log(softmax(x.astype(F64))).astype(x.dtype)),
    ("Identity", ALL, lambda x: x), ("Transpose", ALL, np.transpose), ("Flatten", ALL, lambda x: x),
    ("Trilu", ALL, np.triu), ("Shape", ALL, lambda x: np.array(x.shape)), ("Size", ALL, lambda x: np.array(x.size)),
):
    case(op, types, node(op), function)
for op, function in (("Sqrt", np.sqrt), ("Log", np.log), ("Reciprocal", np.reciprocal)):
    case(op, FLOATS, node(op), function, low=1)
for op, types, function in (
    ("Add", NUMBERS, np.add), ("Sub", NUMBERS, np.subtract), ("Mul", NUMBERS, np.multiply), ("Equal", ALL, np.equal),
    ("Min", NUMBERS, np.minimum), ("Max", NUMBERS, np.maximum), ("Less", NUMBERS, np.less),
    ("Greater", NUMBERS, np.greater), ("LessOrEqual", NUMBERS, np.less_equal), ("And", [BOOL], np.logical_and),
    ("GreaterOrEqual", NUMBERS, np.greater_equal), ("Or", [BOOL], np.logical_or), ("Sum", FLOATS, np.add),
    ("Mean", FLOATS, lambda a, b: (a + b) / a.dtype.type(2)),
):
    case(op, types, node(op), function, PAIR)
case("Div", NUMBERS, lambda m, a, b: m.node("Div", [a, m.node("Add", [m.node("Mul", [b, b]), m.of_type(1)])]),
     lambda a, b: divide(a, b * b + a.dtype.type(1)), PAIR)
case("Mod", INTEGERS, node("Mod"), np.mod, PAIR, -9, -1)
case("ModOfC", NUMBERS, node("Mod", fmod=1), np.fmod, PAIR, 1, 9)
case("Pow", NUMBERS, node("Pow"), np.power, PAIR, 0, 4)
case("PowOfInteger", [I32], lambda m, x: m.node("Pow", [x, m.constant(1.5)]),
     lambda x: np.power(x, 1.5).astype(I32), low=1)
case("PowByInteger", FLOATS, lambda m, x: m.node("Pow", [x, m.integers(3)]), lambda x: x**3)
case("Where", ALL, lambda m, a, b: m.node("Where", [m.constant([True, False, True], BOOL), a, b]),
     lambda a, b: np.where([True, False, True], a, b), PAIR)
case("Clip", NUMBERS, lambda m, x: m.node("Clip", [x, m.of_type(-1), m.of_type(2)]), lambda x: np.clip(x, -1, 2))
case("Gelu", FLOATS, node("Gelu", approximate="tanh"),
     lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x.astype(F64) ** 3))))

for op, types, function in (
    ("ReduceSum", NUMBERS, lambda x: x.sum(1, x.dtype, keepdims=True)),
    ("ReduceMean", NUMBERS, lambda x: divide(x.sum(1, x.dtype, keepdims=True), np.asarray(3, x.dtype))),
    ("ReduceProd", NUMBERS, lambda x: x.prod(1, x.dtype, keepdims=True)),
    ("ReduceSumSquare", NUMBERS, lambda x: (x * x).sum(1, x.dtype, keepdims=True)),
    ("ReduceL2", NUMBERS, lambda x: np.sqrt((x.astype(F64) ** 2).sum(1, keepdims=True)).astype(x.dtype)),
    ("ReduceMax", ALL, lambda x: x.max(1, keepdims=True)), ("ReduceMin", ALL, lambda x: x.min(1, keepdims=True)),
):
    case(op, types, lambda m, x, op=op: m.axes(13, op, x, [1]), function)
case("ArgMax", NUMBERS, node("ArgMax", axis=1, keepdims=0), lambda x: x.argmax(1))
case("CumSum", NUMBERS, lambda m, x: m.node("CumSum", [x, m.constant(1, I32)]), lambda x: x.cumsum(1, x.dtype))
case("LayerNormalization", FLOATS, lambda m, x: m.node("LayerNormalization", [x, m.of_type([1, 1, 1])]), standardize)
case("RMSNormalization", FLOATS, lambda m, x: m.node("RMSNormalization", [x, m.of_type([1, 1, 1])]), root_mean_square,
     low=-999, high=999, since=23)  # whose squares are beyond float16

case("MatMul", NUMBERS, node("MatMul"), np.matmul, PRODUCT)
case("Gemm", NUMBERS, node("Gemm", alpha=2.0, beta=3.0), lambda a, b, c: 2 * (a @ b) + 3 * c, (*PRODUCT, (4,)))
case("Einsum", NUMBERS, node("Einsum", equation="ij,jk->ik"), np.matmul, PRODUCT)
case("EinsumDiagonal", NUMBERS, node("Einsum", equation="ii->i"), np.diagonal, ((3, 3),))

case("Reshape", ALL, lambda m, x: m.node("Reshape", [x, m.integers(3, -1)]), lambda x: x.reshape(3, 2))
case("Expand", ALL, lambda m, x: m.node("Expand", [x, m.integers(2, 1, 3)]), lambda x: np.stack([x, x]))
case("Tile", ALL, lambda m, x: m.node("Tile", [x, m.integers(2, 2)]), lambda x: np.tile(x, (2, 2)))
case("Concat", ALL, node("Concat", axis=1), lambda a, b: np.concatenate([a, b], 1), PAIR)
case("Split", ALL, lambda m, x: m.node("Split", [x, m.integers(1, 2)], 2, axis=1)[1], lambda x: x[:, 1:])
case("Slice", ALL, lambda m, x: m.node("Slice", [x, m.integers(1), m.integers(-9), m.integers(1), m.integers(-1)]),
     lambda x: x[:, 1::-1])
case("Squeeze", ALL, lambda m, x: m.node("Squeeze", [m.node("Unsqueeze", [x, m.integers(0)])]), lambda x: x)
case("Pad", ALL, lambda m, x: m.node("Pad", [x, m.integers(1, 0, 0, 2)]), lambda x: np.pad(x, ((1, 0), (0, 2))))
case("PadReflects", ALL, lambda m, x: m.node("Pad", [x, m.integers(1, 0, 0, 2)], mode="reflect"),
     lambda x: np.pad(x, ((1, 0), (0, 2)), mode="reflect"))
case("Gather", ALL, lambda m, x: m.node("Gather", [x, m.integers(2, -3)], axis=1), lambda x: x[:, [2, 0]])
case("GatherElements", ALL, lambda m, x: m.node("GatherElements", [x, m.constant([[0], [2]], I32)], axis=1),
     lambda x: x[[[0], [1]], [[0], [2]]])
case("GatherND", ALL, lambda m, x: m.node("GatherND", [x, m.constant([[0, 1], [1, 2]], I64)]),
     lambda x: x[[0, 1], [1, 2]])
case("ScatterND", ALL, lambda m, a, b: m.node("ScatterND", [a, m.constant([[1], [0]], I64), b]),
     lambda a, b: b[::-1], PAIR)
case("ScatterElements", ALL, lambda m, a, b: m.node("ScatterElements", [a, m.constant([[1, 0, 1]], I64), b]),
     lambda a, b: np.where([[0, 1, 0], [1, 0, 1]], b, a), ((2, 3), (1, 3)))
for reduction, function in (("add", np.add), ("mul", np.multiply), ("max", np.maximum), ("min", np.minimum)):
    case("ScatterND" + reduction, NUMBERS,
         lambda m, a, b, r=reduction: m.node("ScatterND", [a, m.constant([[1], [0]], I64), b], reduction=r),
         lambda a, b, f=function: f(a, b[::-1]), PAIR)
case("OneHot", ALL, lambda m, x: m.node("OneHot", [m.integers(1, 0), m.constant(2, I64), x]),
     lambda x: x[[[0, 1], [1, 0]]], ((2,),))
case("NonZero", ALL, lambda m, x: m.node("Add", [m.node("NonZero", [m.of_type([0, 1, 1])]), m.node("Size", [x])]),
     lambda x: np.array([[7, 8]]))
case("Range", NUMBERS, lambda m, x: m.node("Mul", [x, m.node("Range", [m.of_type(5), m.of_type(0), m.of_type(-2)])]),
     lambda x: x * np.array([5, 3, 1], x.dtype))
case("ConstantOfShape", NUMBERS,
     lambda m, x: m.node("Add", [x, m.node("ConstantOfShape", [m.integers(3)],
                                           value=numpy_helper.from_array(np.array([7], m.dtype)))]),
     lambda x: x + x.dtype.type(7))
for target in ALL:
    case("CastTo" + target.name, ALL, lambda m, x, t=target: m.node("Cast", [x], to=ONNX[t]),
         lambda x, t=target: x.astype(t))
    case("CastLike" + target.name, ALL, lambda m, x, t=target: m.node("CastLike", [x, m.constant(0, t)]),
         lambda x, t=target: x.astype(t))
case("CastThroughBfloat16", [F16, *INTEGERS, BOOL],  # fused conversions may keep what two of them would lose
     lambda m, x: m.node("Cast", [m.node("Cast", [x], to=TensorProto.BFLOAT16)], to=ONNX[m.dtype]), lambda x: x)
case("SoftmaxCrossEntropyLoss", FLOATS,
     lambda m, x: m.node("SoftmaxCrossEntropyLoss", [x, m.constant([2, 0], I32)], reduction="sum"),
     lambda x: -np.log(softmax(x.astype(F64)))[[0, 1], [2, 0]].sum())


class Types(Model):
    """All cases that an opset has."""

    def __init__(self, opset):
        super().__init__(opset)
        self.expected = {}
        for name, since, dtype, arrays, build, reference in CASES:
            if since == opset:
                self.scope, self.dtype = name, dtype
                for i, array in enumerate(arrays):
                    self.add_input(f"{name}.{i}", array)
                self.add_output(name, build(self, *(f"{name}.{i}" for i in range(len(arrays)))))
                self.expected[name] = dtype, np.asarray(reference(*arrays))

    def of_type(self, value):
        """A constant of the type under test."""
        return self.constant(value, self.dtype)


def check(opset, folder, arguments):
    model = Types(opset)
    results = model.run(sys.argv[1], folder, arguments)
    wrong = []
    for name, (dtype, wanted) in model.expected.items():
        found = results["out/" + name]
        tolerance = 1e-2 if F16 in (dtype, wanted.dtype) else 1e-5
        same = found.dtype == wanted.dtype or wanted.dtype == F64  # computed wider than asked for
        if not same or not np.allclose(found.astype(F64), wanted.astype(F64), tolerance, tolerance):
            wrong.append(f"{name} is {found.dtype} {found.tolist()} instead of {wanted.dtype} {wanted.tolist()}")
    print(f"opset {opset} {' '.join(arguments)}: {len(model.expected)} cases, {len(wrong)} wrong")
    return wrong


def main():
    with tempfile.TemporaryDirectory() as folder:
        wrong = [line for opset in OPSETS for way in (["--interpret"], []) for line in check(opset, folder, way)]
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
