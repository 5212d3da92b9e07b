#!/usr/bin/python3
"""Operators in the forms that they have had from opset 7 on: for every opset one model that holds each of them once or
more, whose outputs and gradients `skycc run`, by the interpreter and compiled, must compute as PyTorch does in float64.
Then the same of constants alone, which are folded while they are imported. Sequences are refused that are more than
the parts of a tensor.

    tests/frontend/onnx/test_operator_forms.py SKYCC
"""
import math
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from onnx import TensorProto, numpy_helper

from operator_models import MICROSOFT, Model, difference, real

OPSETS = range(7, 28)
COMPILED = (7, 12, 18, 27)  # the rest interpreted only
FOLDED = (7, 13, 27)
FEW = sorted({*COMPILED, *FOLDED})  # of a run that is told `few`

FORMS = []


def form(name, parameters, build, reference, since=7, until=99):
    """Declares build(model, *names) -> the name or names of outputs, and reference(*tensors) -> their values, for the
    opsets that have the form."""
    FORMS.append((name, since, until, parameters, build, reference))


# --- Elementwise ------------------------------------------------------------------------------------------------------

POSITIVE = real(2, 3, low=0.5)
ANY = real(2, 3, seed=1)
for op, argument, function, since in (
    ("Sqrt", POSITIVE, torch.sqrt, 7),
    ("Neg", ANY, torch.neg, 7),
    ("Abs", ANY, torch.abs, 7),
    ("Sign", ANY, torch.sign, 9),
    ("Exp", ANY, torch.exp, 7),
    ("Log", POSITIVE, torch.log, 7),
    ("Reciprocal", POSITIVE, torch.reciprocal, 7),
    ("Sin", ANY, torch.sin, 7),
    ("Cos", ANY, torch.cos, 7),
    ("Erf", ANY, torch.erf, 9),
    ("Tanh", ANY, torch.tanh, 7),
    ("Sigmoid", ANY, torch.sigmoid, 7),
    ("Relu", ANY, torch.relu, 7),
    ("LeakyRelu", ANY, lambda x: F.leaky_relu(x, 0.01), 7),
    ("Softplus", ANY, F.softplus, 7),
    ("Softsign", ANY, F.softsign, 7),
    ("Identity", ANY, lambda x: x, 7),
    ("Gelu", ANY, F.gelu, 20),
):
    form(op, [argument], lambda m, x, op=op: m.node(op, [x]), function, since)
form("LeakyReluSlope", [ANY], lambda m, x: m.node("LeakyRelu", [x], alpha=0.3), lambda x: F.leaky_relu(x, 0.3))
form("GeluTanh", [ANY], lambda m, x: m.node("Gelu", [x], approximate="tanh"),
       lambda x: F.gelu(x, approximate="tanh"), 20)
LEFT, RIGHT = real(2, 3, 4, low=0.5), real(3, 1, seed=2, low=0.5)
for op, function, since in (
    ("Add", torch.add, 7), ("Sub", torch.sub, 7), ("Mul", torch.mul, 7), ("Div", torch.div, 7),
    ("Pow", torch.pow, 7), ("Min", torch.minimum, 8), ("Max", torch.maximum, 8), ("Sum", torch.add, 8),
    ("Mean", lambda a, b: (a + b) / 2, 8),
):
    form(op, [LEFT, RIGHT], lambda m, a, b, op=op: m.node(op, [a, b]), function, since)
form("Mod", [real(2, 3), real(3, low=0.6, high=1)], lambda m, a, b: m.node("Mod", [a, b], fmod=1), torch.fmod, 10)
form("MeanOfThree", [ANY, real(3), real(2, 1)], lambda m, *x: m.node("Mean", x), lambda a, b, c: (a + b + c) / 3, 8)
form("PowInteger", [ANY], lambda m, x: m.node("Pow", [x, m.constant(3, np.int64)]), lambda x: x**3, 12)


def clip(m, x):
    if m.opset < 11:
        return m.node("Clip", [x], min=-0.5, max=1.0)
    return m.node("Clip", [x, m.constant(-0.5), m.constant(1.0)])


form("Clip", [ANY], clip, lambda x: torch.clamp(x, -0.5, 1))
form("ClipAbove", [ANY], lambda m, x: m.node("Clip", [x, "", m.constant(1.0)]), lambda x: torch.clamp(x, max=1), 11)
form("Cast", [ANY], lambda m, x: m.node("Cast", [m.node("Cast", [x], to=TensorProto.DOUBLE)], to=TensorProto.FLOAT),
       lambda x: x)
form("CastLike", [ANY],
       lambda m, x: m.number(m.node("CastLike", [x, m.constant(0, np.float64)])), lambda x: x, 15)
form("CastSaturates", [ANY], lambda m, x: m.node("Cast", [x], to=TensorProto.FLOAT, saturate=0), lambda x: x, 19)
form("CastToInteger", [ANY], lambda m, x: m.number(m.node("Cast", [x], to=TensorProto.INT32)), torch.trunc)
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, -1.2, 3.7, 1e9, -3.0], np.float32)
for op, function, since in (("Ceil", torch.ceil, 7), ("Floor", torch.floor, 7), ("Round", torch.round, 11)):
    form(op, [HALVES], lambda m, x, op=op: m.node(op, [x]), function, since)
form("HardSigmoid", [ANY], lambda m, x: m.node("HardSigmoid", [x], alpha=0.3, beta=0.4),
     lambda x: torch.clamp(0.3 * x + 0.4, 0, 1))
form("HardSwish", [ANY], lambda m, x: m.node("HardSwish", [x]), F.hardswish, 14)
form("Swish", [ANY], lambda m, x: m.node("Swish", [x]), F.silu, 24)
form("ConvPoints", [real(2, 6, 5), real(4, 3, 1), real(4)], lambda m, *x: m.node("Conv", x, group=2),
     lambda x, w, b: F.conv1d(x, w, b, groups=2))
form("ConvDepthwise", [real(2, 6, 9), real(6, 1, 3)],
     lambda m, *x: m.node("Conv", x, group=6, pads=[2, 1], strides=[2], dilations=[2]),
     lambda x, w: F.conv1d(F.pad(x, (2, 1)), w, None, 2, 0, 2, 6))
form("ConvSequence", [real(2, 4, 7), real(6, 2, 3), real(6)],
     lambda m, *x: m.node("Conv", x, group=2, auto_pad="SAME_UPPER"),
     lambda x, w, b: F.conv1d(x, w, b, padding=1, groups=2))
form("ConvPatches", [real(2, 3, 4, 6), real(5, 3, 2, 3), real(5)],
     lambda m, *x: m.node("Conv", x, strides=[2, 3]), lambda x, w, b: F.conv2d(x, w, b, (2, 3)))


def turn(x, cosine, sine):
    a, b = x[..., :2], x[..., 2:4]
    return torch.cat((a * cosine - b * sine, a * sine + b * cosine, x[..., 4:]), -1)


form("RotaryEmbedding", [real(2, 3, 4, 6), real(2, 4, 2), real(2, 4, 2, seed=1)],
     lambda m, *x: m.node("RotaryEmbedding", x, rotary_embedding_dim=4),
     lambda x, c, s: turn(x, c[:, None], s[:, None]), 23)
PLACES = torch.tensor([[3, 1, 0, 8], [2, 2, 5, 6]])
form("RotaryRows", [real(2, 4, 12), real(9, 3), real(9, 3, seed=1)],
     lambda m, *x: m.node("RotaryEmbedding", [*x, m.constant(PLACES.numpy(), np.int64)], num_heads=2,
                          interleaved=1),
     lambda x, c, s: turn_pairs(x, c[PLACES], s[PLACES]), 23)


def turn_pairs(x, cosine, sine):
    pairs = x.reshape(2, 4, 2, 3, 2)
    a, b, cosine, sine = pairs[..., 0], pairs[..., 1], cosine[:, :, None], sine[:, :, None]
    return torch.stack((a * cosine - b * sine, a * sine + b * cosine), -1).reshape(2, 4, 12)


form("Where", [ANY, real(3)], lambda m, a, b: m.node("Where", [m.node("Less", [a, b]), a, b]), torch.minimum, 9)
for op, function, since in (("Equal", torch.eq, 11), ("Less", torch.lt, 7), ("Greater", torch.gt, 7),
                            ("LessOrEqual", torch.le, 12), ("GreaterOrEqual", torch.ge, 12)):
    form(op, [ANY, real(3)], lambda m, a, b, op=op: m.number(m.node(op, [a, b])), function, since)
form("Logic", [ANY, real(3)],
       lambda m, a, b: m.number(m.node("Or", [m.node("And", [m.node("Less", [a, b]), m.node("Greater", [a, b])]),
                                              m.node("Not", [m.node("Less", [a, b])])])), torch.ge)
form("IsNaN", [real(3, low=-2, high=-1)], lambda m, x: m.number(m.node("IsNaN", [m.node("Log", [x])])),
       lambda x: torch.ones_like(x), 9)
form("IsInf", [ANY], lambda m, x: m.number(m.node("IsInf", [m.node("Div", [x, m.constant(0)])], detect_negative=0)),
       lambda x: x > 0, 10)


def dropout(m, x):
    if m.opset < 12:
        return m.node("Dropout", [x], ratio=0.3)
    y, mask = m.node("Dropout", [x, m.constant(0.3)], 2)
    return m.node("Mul", [y, m.number(mask)])


form("Dropout", [ANY], dropout, lambda x: x)

# --- Reductions -------------------------------------------------------------------------------------------------------

BLOCK = real(2, 3, 4, low=0.5)
for op, function in (
    ("ReduceMean", torch.mean), ("ReduceSum", torch.sum), ("ReduceMax", torch.amax), ("ReduceMin", torch.amin),
    ("ReduceL2", lambda x, axes, keep: (x * x).sum(axes, keep).sqrt()),
    ("ReduceSumSquare", lambda x, axes, keep: (x * x).sum(axes, keep)),
    ("ReduceProd", lambda x, axes, keep: x.prod(0, True).prod(2, True) if keep else x.prod(2).prod(0)),
):
    last = 13 if op == "ReduceSum" else 18
    form(op, [BLOCK], lambda m, x, op=op, last=last: m.axes(last, op, x, [0, 2]),
           lambda x, f=function: f(x, (0, 2), True))
    form(op + "Drops", [BLOCK], lambda m, x, op=op, last=last: m.axes(last, op, x, [-1, 0], keepdims=0),
           lambda x, f=function: f(x, (0, 2), False), 11)
    if op != "ReduceProd":
        form(op + "All", [BLOCK], lambda m, x, op=op: m.node(op, [x], keepdims=0),
               lambda x, f=function: f(x, (0, 1, 2), False))
form("ReduceNothing", [BLOCK], lambda m, x: m.node("ReduceSum", [x], noop_with_empty_axes=1), lambda x: x, 13)
form("ArgMax", [BLOCK], lambda m, x: m.number(m.node("ArgMax", [x], axis=1, keepdims=0)), lambda x: x.argmax(1))
form("ArgMaxLast", [BLOCK], lambda m, x: m.number(m.node("ArgMax", [x], axis=-1, select_last_index=1)),
       lambda x: x.argmax(2, True), 12)
for op, function in (("Softmax", torch.softmax), ("LogSoftmax", torch.log_softmax)):
    form(op + "Flat", [BLOCK], lambda m, x, op=op: m.node(op, [x]),
           lambda x, f=function: f(x.reshape(2, -1), 1).reshape(x.shape), until=12)
    form(op, [BLOCK], lambda m, x, op=op: m.node(op, [x]), lambda x, f=function: f(x, -1), 13)
    form(op + "Last", [BLOCK], lambda m, x, op=op: m.node(op, [x], axis=2), lambda x, f=function: f(x, -1))
    form(op + "Middle", [BLOCK], lambda m, x, op=op: m.node(op, [x], axis=1), lambda x, f=function: f(x, 1), 13)


def layer_norm(x, gain, bias, dims, epsilon):
    mean = x.mean(dims, keepdim=True)
    return (x - mean) / ((x - mean).square().mean(dims, keepdim=True) + epsilon).sqrt() * gain + bias


def rms_norm(x, gain, dims, epsilon):
    return x / (x.square().mean(dims, keepdim=True) + epsilon).sqrt() * gain


form("LayerNormalization", [BLOCK, real(4), real(4, seed=3)],
       lambda m, x, g, b: m.node("LayerNormalization", [x, g, b]),
       lambda x, g, b: layer_norm(x, g, b, -1, 1e-5), 17)
form("LayerNormalizationTwo", [BLOCK, real(3, 4)],
       lambda m, x, g: m.node("LayerNormalization", [x, g], axis=1, epsilon=0.1),
       lambda x, g: layer_norm(x, g, 0, (1, 2), 0.1), 17)
form("RMSNormalization", [BLOCK, real(4)], lambda m, x, g: m.node("RMSNormalization", [x, g]),
       lambda x, g: rms_norm(x, g, -1, 1e-5), 23)
form("RMSNormalizationTwo", [BLOCK, real(4)],
       lambda m, x, g: m.node("RMSNormalization", [x, g], axis=-2, epsilon=0.1, stash_type=1),
       lambda x, g: rms_norm(x, g, (1, 2), 0.1), 23)

# --- Movement ---------------------------------------------------------------------------------------------------------

form("Reshape", [BLOCK], lambda m, x: m.node("Reshape", [x, m.integers(0, -1, 2)]), lambda x: x.reshape(2, 6, 2))
form("Flatten", [BLOCK], lambda m, x: m.node("Flatten", [x], axis=2), lambda x: x.reshape(6, 4))
form("FlattenLast", [BLOCK], lambda m, x: m.node("Flatten", [x], axis=-1), lambda x: x.reshape(6, 4), 11)
form("Transpose", [BLOCK], lambda m, x: m.node("Transpose", [x]), lambda x: x.permute(2, 1, 0))
form("TransposeAxes", [BLOCK], lambda m, x: m.node("Transpose", [x], perm=[1, 2, 0]), lambda x: x.permute(1, 2, 0))
form("Squeeze", [real(2, 1, 3, 1)], lambda m, x: m.axes(13, "Squeeze", x, [1]), lambda x: x.squeeze(1))
form("SqueezeAll", [real(2, 1, 3, 1)], lambda m, x: m.node("Squeeze", [x]), lambda x: x.squeeze())
form("Unsqueeze", [ANY], lambda m, x: m.axes(13, "Unsqueeze", x, [0, 3]), lambda x: x[None, :, :, None])
form("Expand", [real(3, 1)], lambda m, x: m.node("Expand", [x, m.integers(2, 1, 4)]), lambda x: x.expand(2, 3, 4), 8)
form("Tile", [ANY], lambda m, x: m.node("Tile", [x, m.integers(2, 3)]), lambda x: x.repeat(2, 3))
form("Concat", [ANY, real(2, 1)], lambda m, *x: m.node("Concat", x, axis=1), lambda *x: torch.cat(x, 1))
form("ConcatLast", [ANY, real(2, 1)], lambda m, *x: m.node("Concat", x, axis=-1), lambda *x: torch.cat(x, 1), 11)


def slice_block(m, x):
    if m.opset < 10:
        return m.node("Slice", [x], starts=[1, -3], ends=[1000, -1], axes=[1, 2])
    return m.node("Slice", [x, m.integers(1, -3), m.integers(1000, -1), m.integers(1, 2)])


def empty_slice(m, x):
    if m.opset < 10:
        return m.node("Slice", [x], starts=[2], ends=[2], axes=[1])
    return m.node("Slice", [x, m.integers(2), m.integers(2), m.integers(1)])


form("Slice", [BLOCK], slice_block, lambda x: x[:, 1:, -3:-1])
form("Nothing", [BLOCK],  # the sum of no elements
     lambda m, x: m.axes(13, "ReduceSum", m.node("Exp", [m.node("Neg", [empty_slice(m, x)])]), [1]),
     lambda x: 0 * x[:, :1])
form("SliceBack", [BLOCK],
       lambda m, x: m.node("Slice", [x, m.integers(-1, 0), m.integers(-(2**62), 4), m.integers(-2, -1),
                                     m.integers(-2, 3)]), lambda x: x.flip(1)[:, ::2, ::3], 10)


def split(m, x):
    if m.opset < 13:
        return m.node("Split", [x], 2, axis=2, split=[1, 3])
    return m.node("Split", [x, m.integers(1, 3)], 2, axis=2)


form("Split", [BLOCK], split, lambda x: x.split([1, 3], 2))
form("SplitEqual", [BLOCK], lambda m, x: m.node("Split", [x], 2, axis=-1), lambda x: x.split(2, 2), 11, 17)
form("SplitNumber", [BLOCK], lambda m, x: m.node("Split", [x], 3, axis=2, num_outputs=3),
       lambda x: x.split([2, 2, 0], 2)[:2] + (x[:, :, 4:],), 18)


def sequence(m, x, axis, positions, sizes=(), **attributes):
    """Parts of x at these positions, which are written in any way."""
    parts = m.node("SplitToSequence", [x, *sizes], axis=axis, **attributes)
    return [m.node("SequenceAt", [parts, m.constant(i, np.int64)]) for i in positions]


form("Sequence", [BLOCK], lambda m, x: sequence(m, x, 2, (-1, 0), [m.integers(1, 3)]),
     lambda x: x.split([1, 3], 2)[::-1], 11)
form("SequenceOfEqual", [BLOCK], lambda m, x: sequence(m, x, -1, (1, 0), [m.constant(3, np.int64)]),
     lambda x: x.split(3, 2)[::-1], 11)
form("SequenceOfRows", [BLOCK], lambda m, x: sequence(m, x, 1, (1, -1), keepdims=0), lambda x: (x[:, 1], x[:, -1]), 11)


def pad(m, x, mode, pads, *more):
    if m.opset < 11:
        return m.node("Pad", [x], mode=mode, pads=pads, **({"value": 1.5} if mode == "constant" else {}))
    value = m.constant(1.5) if mode == "constant" else ""
    return m.node("Pad", [x, m.integers(*pads), value, *more], mode=mode)


def numpy_pad(x, mode, *pads):
    for axis, (before, after) in enumerate(pads):
        extent = x.shape[axis]
        if mode == "wrap":  # NumPy before 1.25 does not repeat whole extents
            index = np.arange(-before, extent + after) % extent
        else:
            index = np.pad(np.arange(extent), (before, after), mode=mode)
        x = x.index_select(axis, torch.from_numpy(index))
    return x


form("Pad", [ANY], lambda m, x: pad(m, x, "constant", [1, 0, 0, 2]), lambda x: F.pad(x, (0, 2, 1, 0), value=1.5))
form("PadCrops", [ANY], lambda m, x: pad(m, x, "constant", [-1, 1, 0, -2]),
       lambda x: F.pad(x[1:, :1], (1, 0), value=1.5))
form("PadReflects", [BLOCK], lambda m, x: pad(m, x, "reflect", [0, 2, 1, 1, 1, 3]),
       lambda x: numpy_pad(x, "reflect", (0, 1), (2, 1), (1, 3)))
form("PadEdge", [BLOCK], lambda m, x: pad(m, x, "edge", [3, 2, 1, 1, 1, 0]),
       lambda x: numpy_pad(x, "edge", (3, 1), (2, 1), (1, 0)))
form("PadWraps", [BLOCK], lambda m, x: pad(m, x, "wrap", [3, 0, 1, 1, 1, 9]),
       lambda x: numpy_pad(x, "wrap", (3, 1), (0, 1), (1, 9)), 19)
form("PadAxes", [BLOCK], lambda m, x: pad(m, x, "constant", [1, 0, 2, 3], m.integers(-1, 0)),
       lambda x: F.pad(x, (1, 2, 0, 0, 0, 3), value=1.5), 18)

# --- Indices ----------------------------------------------------------------------------------------------------------

form("Gather", [BLOCK], lambda m, x: m.node("Gather", [x, "ids"], axis=1), lambda x: x[:, IDS])
form("GatherLast", [BLOCK], lambda m, x: m.node("Gather", [x, m.integers(-1, 0)], axis=-1),
       lambda x: x[:, :, [3, 0]], 11)
form("GatherNegative", [BLOCK], lambda m, x: m.node("Gather", [x, "negative"], axis=2), lambda x: x[:, :, NEGATIVE], 11)
form("GatherElements", [real(2, 3)], lambda m, x: m.node("GatherElements", [x, "ids"], axis=1),
       lambda x: x.gather(1, IDS), 11)
form("GatherND", [real(3, 3, 2)], lambda m, x: m.node("GatherND", [x, "ids2"]), lambda x: x[IDS[:, 0], IDS[:, 1]], 11)
form("GatherNDBatch", [real(2, 3, 2)],
       lambda m, x: m.node("GatherND", [x, m.node("Reshape", ["ids", m.integers(2, 2, 1)])], batch_dims=1),
       lambda x: torch.stack([x[0, IDS[0]], x[1, IDS[1]]]), 12)
ROWS = torch.tensor([[1], [4]])
form("ScatterND", [real(5, 2), real(2, 2)], lambda m, x, u: m.node("ScatterND", [x, "rows", u]),
       lambda x, u: x.index_copy(0, ROWS[:, 0], u), 11)
form("ScatterNDAdds", [real(5, 2), real(2, 2)], lambda m, x, u: m.node("ScatterND", [x, "rows", u], reduction="add"),
       lambda x, u: x.index_add(0, ROWS[:, 0], u), 16)
for reduction, function, since in (("mul", torch.mul, 16), ("max", torch.maximum, 18), ("min", torch.minimum, 18)):
    form("ScatterND" + reduction, [real(5, 2), real(2, 2)],
           lambda m, x, u, r=reduction: m.node("ScatterND", [x, "rows", u], reduction=r),
           lambda x, u, f=function: x.index_copy(0, ROWS[:, 0], f(x[ROWS[:, 0]], u)), since)
form("ScatterElements", [real(5, 2), real(2, 2)],
       lambda m, x, u: m.node("ScatterElements", [x, m.node("Concat", ["rows", "rows"], axis=1), u], axis=0),
       lambda x, u: x.index_copy(0, ROWS[:, 0], u), 11)
form("ScatterElementsAdds", [real(5, 2), real(2, 2)],
       lambda m, x, u: m.node("ScatterElements", [x, m.node("Concat", ["rows", "rows"], axis=1), u], reduction="add"),
       lambda x, u: x.index_add(0, ROWS[:, 0], u), 16)
form("Trilu", [BLOCK], lambda m, x: m.node("Trilu", [x, m.constant(1, np.int64)]), lambda x: x.triu(1), 14)
form("TriluLower", [BLOCK], lambda m, x: m.node("Trilu", [x], upper=0), torch.tril, 14)
form("CumSum", [BLOCK], lambda m, x: m.node("CumSum", [x, m.constant(1, np.int64)]), lambda x: x.cumsum(1), 11)
form("CumSumBack", [BLOCK], lambda m, x: m.node("CumSum", [x, m.constant(-1, np.int64)], reverse=1, exclusive=1),
       lambda x: x.flip(2).cumsum(2).flip(2) - x, 11)
form("OneHot", [real(2)], lambda m, x: m.node("OneHot", ["ids", m.integers(4), x], axis=1),
       lambda x: torch.where(F.one_hot(IDS, 4).bool(), x[1], x[0]).transpose(1, 2), 9)
form("NonZero", [real(5, 5)],
       lambda m, x: m.node("Gather", [x, m.node("NonZero", [m.constant([0, 1, 0, 1, 0])])], axis=0),
       lambda x: x[[1, 3]][None], 9)
form("Shapes", [BLOCK],
       lambda m, x: m.node("Add", [x, m.node("ConstantOfShape", [m.node("Shape", [x])],
                                             value=numpy_helper.from_array(np.array([2.5], np.float32)))]),
       lambda x: x + 2.5, 9)
form("ShapePart", [BLOCK], lambda m, x: m.node("Mul", [x, m.number(m.node("Shape", [x], start=-2, end=2))]),
       lambda x: x * 3, 15)
form("Size", [BLOCK], lambda m, x: m.node("Mul", [x, m.number(m.node("Size", [x]))]), lambda x: x * 24)
form("Range", [real(4)],
       lambda m, x: m.node("Mul", [x, m.node("Range", [m.constant(3), m.constant(-1), m.constant(-1)])]),
       lambda x: x * torch.tensor([3.0, 2, 1, 0]), 11)

# --- Products ---------------------------------------------------------------------------------------------------------

form("MatMul", [real(2, 3, 4), real(4, 5)], lambda m, a, b: m.node("MatMul", [a, b]), torch.matmul)
form("MatMulVector", [real(2, 3, 4), real(4)], lambda m, a, b: m.node("MatMul", [a, b]), torch.matmul)
form("Gemm", [real(4, 3), real(5, 4), real(5)],
       lambda m, a, b, c: m.node("Gemm", [a, b, c], alpha=0.5, beta=2.0, transA=1, transB=1),
       lambda a, b, c: 0.5 * a.T @ b.T + 2 * c)
form("GemmAlone", [real(3, 4), real(4, 5)], lambda m, a, b: m.node("Gemm", [a, b]), torch.matmul, 11)
for name, equation, shapes in (("Einsum", "bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
                               ("EinsumSum", "...ij->...i", [(2, 3, 4)]),
                               ("EinsumHeads", "bqhd,bkhd->bhqk", [(2, 3, 2, 4), (2, 5, 2, 4)])):
    form(name, [real(*shape) for shape in shapes], lambda m, *x, e=equation: m.node("Einsum", x, equation=e),
           lambda *x, e=equation: torch.einsum(e, *x), 12)

# --- Losses -----------------------------------------------------------------------------------------------------------

SCORES, WEIGHTS = real(2, 3, 4), np.array([0.5, 1, 2], np.float32)
LABELS = torch.tensor([[0, 2, 1, 2], [1, 1, 0, 2]])
for reduction in ("mean", "sum", "none"):
    for weights in (False, True):
        for op, scale in (("SoftmaxCrossEntropyLoss", lambda x: x),
                          ("NegativeLogLikelihoodLoss", lambda x: torch.log_softmax(x, 1))):
            def build(m, x, op=op, reduction=reduction, weights=weights):
                if op[0] == "N":
                    x = m.node("Transpose", [m.node("LogSoftmax", [m.node("Transpose", [x], perm=[0, 2, 1])], axis=2)],
                               perm=[0, 2, 1])
                inputs = [x, "labels"] + ([m.constant(WEIGHTS)] if weights else [])
                return m.node(op, inputs, reduction=reduction, **({"ignore_index": 0} if weights else {}))

            def reference(x, reduction=reduction, weights=weights):
                weight = torch.from_numpy(WEIGHTS).double() if weights else None
                return F.cross_entropy(x, LABELS, weight, reduction=reduction, ignore_index=0 if weights else -100)

            form(op + reduction + "Weights" * weights, [SCORES], build, reference, 12)
form("LossAndLogs", [SCORES], lambda m, x: m.node("SoftmaxCrossEntropyLoss", [x, "labels"], 2),
       lambda x: (F.cross_entropy(x, LABELS), torch.log_softmax(x, 1)), 12)

# --- Attention --------------------------------------------------------------------------------------------------------


def heads(x, count):
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def attend(q, k, v, scale=None, mask=0, cap=None):
    scores = q @ k.transpose(-1, -2) * (scale if scale else 1 / math.sqrt(q.shape[-1]))
    if cap:
        scores = cap * torch.tanh(scores / cap)
    return torch.softmax(scores + mask, -1) @ v


def join(x):
    return x.transpose(1, 2).flatten(2)


def share(x):
    return x.repeat_interleave(2, 1)


CAUSAL = torch.triu(torch.full((3, 3), -math.inf, dtype=torch.float64), 1)
form("Attention", [real(2, 3, 8), real(2, 3, 8, seed=1), real(2, 3, 8, seed=2)],
       lambda m, *x: m.node("Attention", x, q_num_heads=2, kv_num_heads=2, is_causal=1),
       lambda q, k, v: join(attend(heads(q, 2), heads(k, 2), heads(v, 2), mask=CAUSAL)), 23)
form("AttentionShares", [real(1, 4, 3, 4), real(1, 2, 5, 4), real(1, 2, 5, 6), real(3, 5)],
       lambda m, *x: m.node("Attention", x, scale=0.3, softcap=2.0),
       lambda q, k, v, b: attend(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), 0.3, b, 2.0), 23)

form("AttentionGrouped", [real(2, 3, 16), real(2, 3, 8, seed=1), real(2, 3, 8, seed=2)],
     lambda m, *x: m.node("Attention", x, q_num_heads=4, kv_num_heads=2, is_causal=1, softcap=1.5),
     lambda q, k, v: join(attend(heads(q, 4), share(heads(k, 2)), share(heads(v, 2)), mask=CAUSAL, cap=1.5)), 23)

MASK = torch.tensor([[1, 1, 0], [1, 1, 1]])
PACKED = [real(2, 3, 4), real(4, 12, seed=1), real(12, seed=2)]


def packed_attention(x, w, b, mask=0):
    q, k, v = (x @ w + b).split(4, 2)
    return join(attend(heads(q, 2), heads(k, 2), heads(v, 2), mask=mask))


form("PackedAttention", PACKED,
       lambda m, *x: m.node("Attention", [*x, "mask"], domain=MICROSOFT, num_heads=2),
       lambda *x: packed_attention(*x, (MASK[:, None, None, :].double() - 1) * 10000))
form("PackedAttentionLengths", PACKED,
       lambda m, *x: m.node("Attention", [*x, "lengths"], domain=MICROSOFT, num_heads=2),
       lambda *x: packed_attention(*x, (MASK[:, None, None, :].double() - 1) * 10000))
form("PackedAttentionBias", [*PACKED, real(1, 2, 3, 3)],
       lambda m, x, w, b, s: m.node("Attention", [x, w, b, "", "", s], domain=MICROSOFT, num_heads=2,
                                    unidirectional=1),
       lambda x, w, b, s: packed_attention(x, w, b, s + CAUSAL.clamp(min=-10000)))
PADDED = (MASK[:, None, None, :].double() - 1) * 10000
form("MultiHeadAttention", [real(2, 3, 8), real(2, 3, 8, seed=1), real(2, 3, 12, seed=2), real(28)],
     lambda m, *x: m.node("MultiHeadAttention", [*x, "mask"], domain=MICROSOFT, num_heads=2, unidirectional=1),
     lambda q, k, v, b: join(attend(heads(q + b[:8], 2), heads(k + b[8:16], 2), heads(v + b[16:], 2),
                                    mask=PADDED + CAUSAL.clamp(min=-10000))))
form("MultiHeadPacked", [real(2, 3, 2, 3, 4), real(24)],
     lambda m, x, b: m.node("MultiHeadAttention", [x, "", "", b, "lengths"], domain=MICROSOFT, num_heads=2),
     lambda x, b: join(attend(*(x + b.reshape(3, 2, 4).transpose(0, 1)).permute(3, 0, 2, 1, 4), mask=PADDED)))
form("MultiHeadPackedKeys", [real(2, 4, 8), real(2, 3, 2, 2, 4), real(1, 2, 4, 3)],
     lambda m, q, k, s: m.node("MultiHeadAttention", [q, k, "", "", "", s], domain=MICROSOFT, num_heads=2, scale=0.3),
     lambda q, k, s: join(attend(heads(q, 2), *k.permute(3, 0, 2, 1, 4), 0.3, s)))
form("MultiHeadApart", [real(2, 4, 8), real(2, 2, 3, 4), real(2, 2, 3, 6)],
     lambda m, *x: m.node("MultiHeadAttention", x, domain=MICROSOFT, num_heads=2),
     lambda q, k, v: join(attend(heads(q, 2), k, v)))


def grouped(m, *inputs, **attributes):
    return m.node("GroupQueryAttention", inputs, domain=MICROSOFT, num_heads=4, kv_num_heads=2, **attributes)


def turned(x, cosine, sine):
    return torch.cat((x[..., :2] * cosine - x[..., 2:] * sine, x[..., :2] * sine + x[..., 2:] * cosine), -1)


def turned_pairs(x, cosine, sine):
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cosine - b * sine, a * sine + b * cosine), -1).flatten(3)


STEPS = torch.tensor([[0, 1, 2], [3, 0, 7]])
form("GroupQueryAttention", [real(2, 3, 16), real(2, 3, 8, seed=1), real(2, 3, 8, seed=2)],
     lambda m, *x: grouped(m, *x, "", "", "last", m.constant(3, np.int32), scale=0.4, softcap=1.5),
     lambda q, k, v: join(attend(heads(q, 4), share(heads(k, 2)), share(heads(v, 2)), 0.4,
                                 CAUSAL + torch.log(MASK[:, None, None, :].double()), 1.5)))
form("GroupQueryPacked", [real(2, 3, 32), real(5, 2), real(5, 2, seed=1)],
     lambda m, x, c, s: grouped(m, x, "", "", "", "", "", "", c, s, do_rotary=1),
     lambda x, c, s: join(attend(turned(heads(x[..., :16], 4), c[:3], s[:3]),
                                 share(turned(heads(x[..., 16:24], 2), c[:3], s[:3])), share(heads(x[..., 24:], 2)),
                                 mask=CAUSAL)))
form("GroupQueryPositions", [real(2, 3, 16), real(2, 3, 8, seed=1), real(2, 3, 8, seed=2), real(8, 2),
                             real(8, 2, seed=1), real(1, 4, 3, 3)],
     lambda m, q, k, v, c, s, b: grouped(m, q, k, v, "", "", "", "", c, s, m.constant(STEPS.numpy(), np.int64), b,
                                         do_rotary=1, rotary_interleaved=1, local_window_size=-1),
     lambda q, k, v, c, s, b: join(attend(turned_pairs(heads(q, 4), c[STEPS][:, None], s[STEPS][:, None]),
                                          share(turned_pairs(heads(k, 2), c[STEPS][:, None], s[STEPS][:, None])),
                                          share(heads(v, 2)), mask=b + CAUSAL)))
form("SkipLayerNormalization", [BLOCK, real(2, 3, 4, seed=1), real(4), real(4, seed=1), real(4, seed=2)],
       lambda m, *x: m.node("SkipLayerNormalization", x, domain=MICROSOFT, epsilon=1e-3),
       lambda x, s, g, b, c: layer_norm(x + s + c, g, b, -1, 1e-3))
form("EmbedLayerNormalization", [real(5, 4), real(6, 4), real(2, 4), real(4), real(4, seed=1)],
       lambda m, w, p, s, g, b: m.node("EmbedLayerNormalization", ["words", "segments", w, p, s, g, b, "mask"], 2,
                                       domain=MICROSOFT, epsilon=1e-3)[0],
       lambda w, p, s, g, b: layer_norm(w[WORDS] + p[:3] + s[SEGMENTS], g, b, -1, 1e-3))
form("BiasGelu", [ANY, real(3)], lambda m, *x: m.node("BiasGelu", x, domain=MICROSOFT), lambda x, b: F.gelu(x + b))
form("FastGelu", [ANY, real(3)], lambda m, *x: m.node("FastGelu", x, domain=MICROSOFT),
       lambda x, b: F.gelu(x + b, approximate="tanh"))
form("MicrosoftGelu", [ANY], lambda m, x: m.node("Gelu", [x], domain=MICROSOFT), F.gelu)
form("FusedMatMul", [real(2, 4, 3), real(2, 5, 4)],
       lambda m, *x: m.node("FusedMatMul", x, domain=MICROSOFT, alpha=0.5, transA=1, transB=1),
       lambda a, b: 0.5 * a.transpose(1, 2) @ b.transpose(1, 2))
form("FusedMatMulBatch", [real(3, 2, 4), real(4, 2, 5)],
       lambda m, *x: m.node("FusedMatMul", x, domain=MICROSOFT, transBatchA=1, transBatchB=1),
       lambda a, b: a.transpose(0, 1) @ b.transpose(0, 1))

# --- Running ----------------------------------------------------------------------------------------------------------

IDS = torch.tensor([[0, 2], [1, 1]])
WORDS = torch.tensor([[0, 4, 2], [1, 1, 3]])
SEGMENTS = torch.tensor([[0, 1, 1], [0, 0, 1]])
NEGATIVE = torch.tensor([-1, 0, -4])
INPUTS = {"negative": NEGATIVE, "ids": IDS, "ids2": IDS, "rows": ROWS, "labels": LABELS, "mask": MASK.int(),
          "words": WORDS.int(), "segments": SEGMENTS.int(), "lengths": MASK.sum(1).int(),
          "last": MASK.sum(1).int() - 1}


class Forms(Model):
    """All forms of one opset, and a loss: the sum of all outputs, weighted."""

    def __init__(self, opset, constant):
        super().__init__(opset)
        self.parameters, self.expected, self.terms, self.total = {}, {}, [], 0
        inputs = {name: tensor.numpy() for name, tensor in INPUTS.items()}
        for name, value in inputs.items():
            (self.add_initializer if constant else self.add_input)(name, value)
        for name, since, until, parameters, build, reference in FORMS:
            if since <= opset <= until:
                self.scope = name
                self.add(name, parameters, build, reference, constant)

    def add(self, form, parameters, build, reference, constant):
        names = [f"{form}.{i}" for i in range(len(parameters))]
        for i, value in enumerate(parameters):
            self.parameters[names[i]] = torch.tensor(value, dtype=torch.float64, requires_grad=True)
            if not constant:
                self.add_initializer(names[i], value)
        results = build(self, *([self.constant(value) for value in parameters] if constant else names))
        wanted = reference(*(self.parameters[name] for name in names))
        for i, (result, tensor) in enumerate(zip([results] if isinstance(results, str) else results,
                                                 wanted if isinstance(wanted, tuple) else (wanted,))):
            tensor, weights = tensor.double(), real(*tensor.shape, seed=7)
            self.add_output(f"y.{form}.{i}", result)
            self.expected[f"y.{form}.{i}"] = tensor
            self.total = self.total + (tensor * torch.from_numpy(weights)).sum()
            self.terms.append(self.node("ReduceSum", [self.node("Mul", [result, self.constant(weights)])], keepdims=0))

    def add_loss(self):
        loss = self.terms[0]
        for term in self.terms[1:]:
            loss = self.node("Add", [loss, term])
        self.add_output("loss", loss)


def check(opset, folder, constant, arguments):
    forms, way = Forms(opset, constant), "folded" if constant else "interpreted" if arguments else "compiled"
    if not constant:
        forms.add_loss()
        forms.total.backward()
        arguments = [*arguments, "--grad", "--loss", "output:loss", "--untie"]
    results = forms.run(sys.argv[1], folder, arguments)
    wrong, largest = [], 0
    for name, tensor in forms.expected.items():
        error = difference(results["out/" + name].astype(np.float64), tensor.detach().numpy())
        wrong += [f"{name} is {error:.2g} off"] * (not error <= 1e-5)
        largest = max(largest, error)
    gradients = {} if constant else forms.parameters
    for name, tensor in gradients.items():
        wanted = tensor.grad.numpy() if tensor.grad is not None else np.zeros(tensor.shape)
        error = difference(results.get("grad/" + name, np.zeros(wanted.shape)), wanted)
        wrong += [f"the gradient of {name} is {error:.2g} off"] * (not error <= 3e-5)
        largest = max(largest, error)
    print(f"opset {opset}, {way}: {len(forms.expected)} outputs, {len(gradients)} gradients, "
          f"largest error {largest:.2g}")
    return [f"opset {opset}: {line}" for line in wrong]


def check_refusals(folder):
    """Sequences that are read otherwise, and positions and sizes that do not fit."""
    wrong, path = [], f"{folder}/model.onnx"
    for said, sizes, build in (("input 0 is a sequence", (), lambda m, parts: parts),
                               ("the position is outside the sequence of 3", (),
                                lambda m, parts: m.node("SequenceAt", [parts, m.integers(3)])),
                               ("input 0 is no sequence", (),
                                lambda m, parts: m.node("SequenceAt", ["x", m.integers(0)])),
                               ("do not add up", (1, 1),
                                lambda m, parts: m.node("SequenceAt", [parts, m.integers(0)]))):
        model = Model(18)
        model.add_input("x", BLOCK)
        sizes = [model.integers(*sizes)] if sizes else []
        model.add_output("y", build(model, model.node("SplitToSequence", ["x", *sizes], axis=1)))
        model.save(path)
        result = subprocess.run([sys.argv[1], "check", path], capture_output=True, text=True)
        wrong += [f"{said}: {result.returncode} {result.stderr}"] * (not result.returncode or said not in result.stderr)
    return wrong


def main():
    with tempfile.TemporaryDirectory() as folder:
        wrong = check_refusals(folder)
        for opset in FEW if "few" in sys.argv[2:] else OPSETS:
            wrong += check(opset, folder, False, ["--interpret"])
            wrong += check(opset, folder, False, []) if opset in COMPILED else []
            wrong += check(opset, folder, True, ["--interpret"]) if opset in FOLDED else []
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
