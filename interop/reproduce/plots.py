"""Plots of records: published, measured and weft's own figures, as SVG.

Each figure is a ratio to the baseline, on a logarithmic scale on which the line at 0 % is no
change. A plot has its figures as words too, and its own background, so that it can be read on
any page.
"""

import math
import textwrap
from xml.sax.saxutils import escape

from figures import ROOT, figure, gain, is_shown, published, record_path, sheet_of

PICTURES = ROOT / "docs" / "pictures"
STYLE = "style.css"
# Size of the record that is drawn: ten runs of the default size, which 004 does not have.
PLOTTED = {"000": "default", "001": "default", "002": "default", "003": "default", "004": "quick"}

# Pixels: width of a plot, ends of the scale, right ends of the columns of figures, and heights.
WIDE = 840
LEFT, RIGHT = 256, 546
COLUMNS = {"published": 616, "measured": 704, "verdict": 718}
ROW, LINE, HEAD, FOOT = 44, 16, 62, 60

# Letters in a line of a label.
LETTERS = 34

# Largest and smallest ratio of a scale; a figure beyond an end is drawn at it, as an arrow.
RATIO_MIN, RATIO_MAX = 1 / 64, 256


def ratio(percent):
    return 1 + percent / 100


class Scale:
    """Ratios from `low` to `high` on the width of a plot."""

    def __init__(self, ratios):
        inside = [it for it in ratios if RATIO_MIN <= it <= RATIO_MAX] + [1]
        room = 1.03 if max(inside) / min(inside) < 4 else 1.2
        self.low, self.high = min(inside) / room, max(inside) * room

    def at(self, value):
        value = min(max(value, self.low), self.high)
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return LEFT + part * (RIGHT - LEFT)

    def ticks(self):
        """Round ratios, far enough from each other for their labels."""
        doubled = [2.0**power for power in range(-6, 9)]
        kinds = [
            [1 + step / 20 for step in range(-10, 11)],
            [1 + step / 10 for step in range(-5, 11)],
            [0.5, 0.6, 0.8, 1, 1.2, 1.5, 2, 3, 4],
            [0.5, 0.7, 1, 1.5, 2, 3, 4],
            doubled,
            doubled[::2],
            doubled[::3],
        ]
        for kind in kinds:
            found = [it for it in kind if self.low <= it <= self.high]
            places = [self.at(it) for it in found]
            if all(after - before >= 42 for before, after in zip(places, places[1:])):
                return found
        return [1]


def tick_label(value):
    if value == 1:
        return "0 %"
    if value >= 2:
        return f"x {value:.0f}"
    return f"{round(100 * (value - 1), 1):+.0f} %" if value >= 0.5 else f"1/{1 / value:.0f}"


def text(x, y, words, kind="", anchor="start"):
    style = f' class="{kind}"' if kind else ""
    end = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text{style} x="{x:.1f}" y="{y:.1f}"{end}>{escape(words)}</text>\n'


def line(kind, x1, y1, x2, y2):
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>\n'


def diamond(x, y, kind):
    return f'<path class="{kind}" d="M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5z"/>\n'


def disc(x, y, kind):
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>\n'


def square(x, y, kind):
    return f'<rect class="{kind}" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>\n'


def arrow(x, y, kind, up):
    step = 8 if up else -8
    return f'<path class="{kind}" d="M{x:.1f} {y:.1f}l{-step} -5v10z"/>\n'


SHAPES = {"published": (diamond, "f0"), "measured": (disc, "f1"), "own": (square, "f2")}


def mark(series, percent, interval, scale, y):
    """Mark of one figure, with its interval if it has one."""
    shape, kind = SHAPES[series]
    value, drawn = ratio(percent), ""
    if not scale.low <= value <= scale.high:
        return arrow(scale.at(value), y, kind, value > scale.high)
    if interval and interval[0] < interval[1]:
        low, high = (scale.at(ratio(end)) for end in interval)
        drawn += line("whisker", low, y, high, y)
        drawn += line("whisker", low, y - 4, low, y + 4) + line("whisker", high, y - 4, high, y + 4)
    return drawn + shape(scale.at(value), y, kind)


def series_of(row):
    """Figures of a row by series: percent, and the interval if it was measured."""
    found = {"published": (row["published"]["gain_pct"], None)}
    found["measured"] = (row["measured"]["gain_pct"], row["measured"]["ci95"])
    if row["beyond"]:
        found["own"] = (row["beyond"]["gain_pct"], row["beyond"]["ci95"])
    return {name: it for name, it in found.items() if it[0] is not None}


def band_ends(row, scale):
    """Ends of the band of a row, as ratios."""
    if row["band"] != "direction":
        return row["band"]
    gains = row["published"]["gain_pct"]
    up = (gains if gains is not None else row["measured"]["gain_pct"]) > 0
    return (1, scale.high) if up else (scale.low, 1)


def words_of(row):
    """Words of the columns of a row: published, measured, verdict."""
    if row["kind"] == "count":
        return published(row), figure(row["measured"]["patched"]), row["verdict"]
    verdict = row["verdict"].replace("-", " ") if row["counted"] else "not published"
    return published(row), gain(row["measured"]["gain_pct"]), verdict


def label_lines(row, label):
    """Lines of the label of a row, each with its class."""
    lines = [(words, "") for words in textwrap.wrap(label, LETTERS)]
    return lines + [("less is better", "soft small")] * (row["better"] == "lower")


def height(row, label):
    return max(ROW, LINE * len(label_lines(row, label)) + 8)


def draw_row(row, label, scale, top):
    """A row of a plot: its name, its marks and its figures. A count has no mark."""
    lines, tall = label_lines(row, label), height(row, label)
    middle, drawn = top + tall / 2, ""
    first = middle + 4.5 - LINE / 2 * (len(lines) - 1)
    for at, (words, kind) in enumerate(lines):
        drawn += text(16, first + LINE * at, words, kind)
    if row["kind"] != "count":
        low, high = (scale.at(end) for end in band_ends(row, scale))
        wide = max(high - low, 2)
        drawn += (
            f'<rect class="band" x="{low:.1f}" y="{top + 2:.1f}" width="{wide:.1f}" '
            f'height="{tall - 4}"/>\n'
        )
        for lane, (name, (percent, interval)) in enumerate(series_of(row).items()):
            lanes = len(series_of(row))
            y = middle + 12 * (lane - (lanes - 1) / 2)
            drawn += mark(name, percent, interval, scale, y)
    for (name, x), words in zip(COLUMNS.items(), words_of(row)):
        anchor = "start" if name == "verdict" else "end"
        drawn += text(x, middle + 4.5, words, "small", anchor)
    return drawn


def legend(y, rows, own):
    """Marks and their meaning, in one line. `own` is the name of weft's own policy, if any."""
    entries = [("published", "published"), ("measured", "measured, with its 95 % interval")]
    entries += [("own", own)] if own else []
    x, drawn = 22, ""
    for series, words in entries:
        shape, kind = SHAPES[series]
        drawn += shape(x, y - 4, kind) + text(x + 12, y, words, "small")
        x += 34 + 6.6 * len(words)
    if any(row["kind"] != "count" for row in rows):
        drawn += f'<rect class="band" x="{x - 6:.1f}" y="{y - 10:.1f}" width="16" height="12"/>\n'
        drawn += text(x + 16, y, "band, written down before the first run", "small")
    return drawn


def plot(title, about, rows, own):
    """The whole plot. `rows` has the label of each row and the row."""
    marked = [row for _, row in rows if row["kind"] != "count"]
    ratios = [ratio(percent) for row in marked for percent, _ in series_of(row).values()]
    ratios += [end for row in marked if row["band"] != "direction" for end in row["band"]]
    scale = Scale(ratios)
    tops = [HEAD]
    for label, row in rows:
        tops.append(tops[-1] + height(row, label))
    bottom = tops[-1]
    tall = bottom + FOOT
    drawn = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {tall}" width="{WIDE}" '
        f'height="{tall}" role="img" aria-labelledby="title about">\n'
        f'<title id="title">{escape(title)}</title>\n<desc id="about">{escape(about)}</desc>\n'
        f"<style>\n{(PICTURES / STYLE).read_text()}</style>\n"
        f'<rect class="page" x="0.5" y="0.5" width="{WIDE - 1}" height="{tall - 1}" rx="6"/>\n'
    )
    drawn += text(16, 24, title, "bold")
    for name, x in COLUMNS.items():
        drawn += text(x, HEAD - 10, name, "soft small", "start" if name == "verdict" else "end")
    for tick in scale.ticks():
        kind = "mark" if tick == 1 else "rule"
        drawn += line(kind, scale.at(tick), HEAD, scale.at(tick), bottom)
        drawn += text(scale.at(tick), bottom + 16, tick_label(tick), "soft small", "middle")
    for (label, row), top in zip(rows, tops):
        if top > HEAD:
            drawn += line("rule", 16, top, WIDE - 16, top)
        drawn += draw_row(row, label, scale, top)
    drawn += legend(bottom + 44, [row for _, row in rows], own)
    return drawn + "</svg>\n"


def headline(rows):
    """The row that sums up a patch, as in `weft reproduce`: the count, else the first published."""
    counts = [row for row in rows if row["kind"] == "count"]
    return (counts + [row for row in rows if is_shown(row) and row["published"]["gain_pct"]])[0]


def drawings():
    """All plots, by the names of their files: one for each patch, and one for all of them."""
    drawn, heads = {}, []
    for patch, size in PLOTTED.items():
        sheet = sheet_of(record_path(patch, size))
        rows = [row for row in sheet["rows"] if is_shown(row)]
        runs = sheet["command"].split("--runs ")[1].split()[0]
        names = {row["beyond"]["name"] for row in rows if row["beyond"]}
        (own,) = names or {""}
        labelled = [(f"{row['experiment']}: {row['case']}", row) for row in rows]
        title = f"Patch {patch}, before it and with it: {runs} runs of each, {size} size"
        about = f"Written from experiments/results/{patch}-{size}.json: {sheet['command']}"
        drawn[f"patch-{patch}.svg"] = plot(title, about, labelled, own and f"weft's own: {own}")
        head = headline(rows)
        heads.append((f"{patch}: {head['experiment']}, {head['case']}", {**head, "beyond": None}))
    title = "One figure of each patch, before it and with it"
    about = "Written from experiments/results/: " + ", ".join(
        f"{patch}-{size}.json" for patch, size in PLOTTED.items()
    )
    drawn["patches.svg"] = plot(title, about, heads, "")
    return drawn
