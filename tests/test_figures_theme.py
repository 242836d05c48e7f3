"""Colours that everybody can tell apart, computed; and labels that stay text."""

from itertools import combinations

import numpy as np
import plotly.graph_objects as go
import pytest

from traceread.figures.labels import exact, kernel_label, label, wrapped
from traceread.figures.theme import BACKGROUND, COLORS, empty_figure, make_figure, template, text_color, worth_a_legend
from traceread.measurements.classes import StepClass

# Simulations of dichromatic sight in linear RGB: Machado, Oliveira and Fernandes, 2009, severity 1.
SIGHT = {
    "normal": np.eye(3),
    "no red cones": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green cones": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue cones": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]])


def linear(color):
    c = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    ratio = XYZ @ np.clip(rgb, 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(a, b):
    low, high = sorted((XYZ @ linear(c))[1] for c in (a, b))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_of_classes_are_told_apart(sight):
    seen = {c: lab(np.array(SIGHT[sight]) @ linear(color)) for c, color in COLORS.items()}
    distances = {(a.key, b.key): float(np.linalg.norm(seen[a] - seen[b])) for a, b in combinations(StepClass, 2)}
    assert min(distances.values()) > 24, min(distances, key=distances.get)


@pytest.mark.parametrize("dark", [False, True])
def test_colours_stand_out_from_the_background(dark):
    assert all(contrast(color, BACKGROUND[dark]) > 1.4 for color in COLORS.values())
    assert contrast(template(dark)["layout"]["font"]["color"], BACKGROUND[dark]) > 12


@pytest.mark.parametrize("color", COLORS.values())
def test_text_on_a_colour_is_readable(color):
    assert contrast(text_color(color), color) > 3


def test_every_class_has_a_colour_of_its_own():
    assert list(COLORS) == list(StepClass)
    assert len(set(COLORS.values())) == len(StepClass)


def test_legends_name_what_can_be_seen():
    assert worth_a_legend(2, 1000)
    assert not worth_a_legend(1, 1000)
    assert not worth_a_legend(0, 0)


def test_figures_share_the_template():
    light, dark = (make_figure([{"type": "bar", "x": [1]}], title="t", height=100, dark=d) for d in (False, True))
    assert isinstance(light, go.Figure)
    assert (light.layout.paper_bgcolor, light.layout.template.layout.paper_bgcolor) == (None, "#ffffff")
    assert dark.layout.template.layout.paper_bgcolor == BACKGROUND[True]


def test_an_empty_figure_says_why():
    assert empty_figure("Ranks", "because", dark=False).layout.annotations[0].text == "because"


def test_labels_are_escaped_and_short():
    assert label("<b>&x</b>\x1b[31m\n") == "&lt;b&gt;&amp;x&lt;/b&gt; "
    assert label("a" * 100, 9) == "aaaaaa…aa"
    assert kernel_label("void at::native::f<int>(int)") == "f&lt;int&gt;"
    assert wrapped("one two <three> four", 9) == "one two<br>&lt;three&gt;<br>four"
    assert wrapped("word " * 40, 20, 2).endswith(" …")
    assert exact(1_234_567) == "1.23 ms (1,234,567 ns)"
