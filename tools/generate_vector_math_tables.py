#!/usr/bin/env python3
"""Writes kernels/vector_math_tables.h: the coefficients of kernels/vector_math.h.

Polynomials interpolate at the zeros of a Chebyshev polynomial. Needs mpmath, which torch brings along.
"""

from pathlib import Path

import mpmath as mp
import numpy as np

mp.mp.prec = 150
OUTPUT = Path(__file__).parent.parent / "kernels" / "vector_math_tables.h"
NUM_INTERVALS = 16
HEADER = """#pragma once

// Written by tools/generate_vector_math_tables.py.
namespace lazyplug::kernels::tables {

"""


def to_float(x):
    return mp.mpf(float(np.float32(float(x))))


def interpolate(function, low, high, num_coefficients):
    """The polynomial's coefficients from the lowest on, in powers of the argument."""
    nodes = [
        (low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * num_coefficients))
        for i in range(num_coefficients)
    ]
    matrix = mp.matrix([[node**power for power in range(num_coefficients)] for node in nodes])
    return [to_float(c) for c in mp.lu_solve(matrix, mp.matrix([function(node) for node in nodes]))]


def find_center(function, low, high):
    """A float in the middle half of the interval at which the function is nearly a float too."""
    quarter = (high - low) / 4
    candidates = [to_float(low + quarter + 2 * quarter * i / 2000) for i in range(2001)]
    return min(candidates, key=lambda center: abs(function(center) - to_float(function(center))))


def fit_interval(function, low, high, num_coefficients):
    """The center, and the coefficients in powers of the distance from it; at 0, of the function less its argument."""
    if low == 0:
        return [0, 0, *interpolate(lambda x: function(x) / x - 1, low, high, num_coefficients - 1)]
    center = find_center(function, low, high)
    value = function(center)
    slopes = interpolate(
        lambda d: (function(center + d) - value) / d, low - center, high - center, num_coefficients - 1
    )
    return [center, to_float(value), *slopes]


def bounds(scale, end):
    """Intervals are told apart by the exponent and two bits of the mantissa of x * scale + 1/2, from 1/2 to 8."""
    inner = [mp.mpf(2) ** octave * (1 + mp.mpf(quarter) / 4) for octave in (-1, 0, 1, 2) for quarter in range(4)]
    return [(x - 0.5) / scale for x in inner] + [mp.mpf(end)]


def write_floats(values):
    return "{" + ", ".join(f"{float(v):#.9g}F" for v in values) + "}"


def write_table(name, function, scale, end, num_coefficients):
    scale = to_float(scale)
    edges = bounds(scale, end)
    assert end * scale + 0.5 < 8
    intervals = [fit_interval(function, edges[i], edges[i + 1], num_coefficients) for i in range(NUM_INTERVALS)]
    # The index's four low bits are 8 for 1/2.
    rows = [[intervals[(i + 8) % NUM_INTERVALS][row] for i in range(NUM_INTERVALS)] for row in range(len(intervals[0]))]
    text = "// Centers of the intervals, and coefficients in powers of the distance; of the first, less the distance.\n"
    text += f"alignas(64) constexpr float k{name}[{len(rows)}][{NUM_INTERVALS}] = {{\n"
    text += ",\n".join("    " + write_floats(row) for row in rows) + "};\n"
    text += f"constexpr float k{name}Scale = {float(scale):#.9g}F;\n"
    return text + f"constexpr float k{name}End = {float(to_float(end)):#.9g}F;\n\n"


def interpolate_rational(function, end, degree, degree_below, half):
    """The coefficients, from the lowest on, of a numerator and a denominator, which begins with 1, on 0 to `end`.

    Half of the nodes lie below `half`, as those of x / (half + x) would be spread.
    """
    num_nodes = degree + degree_below + 1
    nodes = []
    for i in range(num_nodes):
        place = (1 + mp.cos(mp.pi * (2 * i + 1) / (2 * num_nodes))) / 2
        nodes.append(half * place / (1 + half / end - place))
    rows = [
        [x**power for power in range(degree + 1)] + [-function(x) * x**power for power in range(1, degree_below + 1)]
        for x in nodes
    ]
    solution = list(mp.lu_solve(mp.matrix(rows), mp.matrix([function(x) for x in nodes])))
    return [to_float(c) for c in solution[: degree + 1]], [1, *map(to_float, solution[degree + 1 :])]


def write_polynomial(comment, name, function, low, high, num_coefficients):
    coefficients = interpolate(function, mp.mpf(low), mp.mpf(high), num_coefficients)
    return f"// {comment}\nconstexpr float k{name}[] = {write_floats(coefficients)};\n\n"


def write_tail(end):
    def function(x):
        return mp.ncdf(-x) * mp.exp(x * x / 2)

    numerator, denominator = interpolate_rational(function, end, degree=4, degree_below=5, half=mp.mpf(3))
    text = "// exp(x^2 / 2) times the probability that a normally distributed number is above x, from 0 to the end\n"
    text += f"constexpr float kTailNumerator[] = {write_floats(numerator)};\n"
    text += f"constexpr float kTailDenominator[] = {write_floats(denominator)};\n"
    return text + f"constexpr float kTailEnd = {float(end):#.9g}F;\n\n"


def main():
    half = mp.log(2) / 2
    text = HEADER
    text += write_polynomial(
        "(exp(x) - 1 - x) / x^2 for |x| <= log(2) / 2",
        "Exp",
        lambda x: (mp.expm1(x) - x) / x**2,
        -half - 0.001,
        half + 0.002,  # no zero at 0
        5,
    )
    text += write_polynomial(
        "(log(1 + x) - x) / x^2 from 0.699 - 1 to 1.398 - 1",
        "Log",
        lambda x: (mp.log1p(x) - x) / x**2,
        -0.3009,
        0.3985,
        9,
    )
    text += write_polynomial(
        "(sin(sqrt(x)) / sqrt(x) - 1) / x for x <= (pi / 4)^2",
        "Sin",
        lambda x: (mp.sin(mp.sqrt(x)) / mp.sqrt(x) - 1) / x,
        0,
        (mp.pi / 4) ** 2 * 1.001,
        3,
    )
    text += write_polynomial(
        "(cos(sqrt(x)) - 1) / x for x <= (pi / 4)^2",
        "Cos",
        lambda x: (mp.cos(mp.sqrt(x)) - 1) / x,
        0,
        (mp.pi / 4) ** 2 * 1.001,
        4,
    )
    text += write_tail(mp.mpf("12.5"))
    text += write_table("Tanh", mp.tanh, 0.8125, 9.125, 7)
    text += write_table("Erf", mp.erf, 1.8125, 4, 7)
    OUTPUT.write_text(text.rstrip() + "\n\n} // namespace lazyplug::kernels::tables\n")


if __name__ == "__main__":
    main()
