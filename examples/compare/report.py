"""Reports the measurements of `run` as medians: a table in Markdown, JSON and a plot."""

import json
import statistics
from pathlib import Path

DISPLAY_NAMES = {"voxbridge": "voxbridge", "nginx": "nginx", "haproxy": "haproxy", "rust": "plain Rust", "python": "Python"}
ROW_TITLES = {
    "conversation": "CPU per session-second, `conversation`, {sessions} sessions",
    "many": "the same, {sessions} sessions",
    "silence": "the same, `speech` while nobody speaks, {sessions} sessions",
}
# Limits of voxbridge's CPU time, as multiples of a contestant's.
CPU_RATIO_GOALS = {
    ("conversation", "nginx"): 0.75,
    ("conversation", "rust"): 0.4,
    ("conversation", "python"): 0.25,
    ("many", "nginx"): 0.75,
    ("silence", "nginx"): 0.35,
}
COLOURS = {"voxbridge": "#2a6f97", "nginx": "#7f8c8d", "haproxy": "#aab7b8", "rust": "#8c5e3c", "python": "#e0a030"}


def json_options(options):
    return {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}


def one_line(figures):
    """Formats one run as one line."""
    words = [f"{figures['cpu_us']:.0f} us ({figures['user_us']:.0f} user, {figures['system_us']:.0f} system)"]
    words += [f"{direction} p99 {figures[direction]['p99']:.2f} ms" for direction in ("up", "down") if figures[direction]]
    words += [f"{figures['lost']} samples lost, repeated, misplaced or not recognised"] if figures["lost"] else []
    words += [f"{figures['sessions_lost']} sessions lost"] if figures["sessions_lost"] else []
    words += [] if figures["valid"] else ["the generator was late"]
    return ", ".join(words)


def worst_p99(figures):
    """The larger p99 of the latencies added in each direction, ms."""
    return max((figures[direction]["p99"] for direction in ("up", "down") if figures[direction]), default=0.0)


class Row:
    """The rounds of one row. A round counts only if the generator was on time for every contestant."""

    def __init__(self, results, name):
        self.name = name
        self.measurements = [measurement for measurement in results["rounds"] if measurement["row"] == name]
        rounds = {}
        for measurement in self.measurements:
            rounds.setdefault(measurement["round"], {})[measurement["who"]] = measurement
        full = max((len(by_contestant) for by_contestant in rounds.values()), default=0)
        complete = [by_contestant for by_contestant in rounds.values() if len(by_contestant) == full]
        in_time = lambda by_contestant: all(measurement["valid"] for measurement in by_contestant.values())
        self.rounds = [by_contestant for by_contestant in complete if in_time(by_contestant)]
        self.excluded_rounds = len(complete) - len(self.rounds)
        self.contestants = [name for name in DISPLAY_NAMES if any(name in by_contestant for by_contestant in self.rounds)]

    def median(self, contestant, value_of):
        values = [value_of(by_contestant[contestant]) for by_contestant in self.rounds if contestant in by_contestant]
        values = [value for value in values if value is not None]
        return statistics.median(values) if values else None

    def cpu_ratio(self, reference):
        """Median of the ratios of all rounds."""
        return statistics.median(by_contestant["voxbridge"]["cpu_us"] / by_contestant[reference]["cpu_us"] for by_contestant in self.rounds)


def markdown_table(results):
    """Builds the Markdown table: figures, contestants, ratios and limits."""
    lines = ["| | " + " | ".join(DISPLAY_NAMES.values()) + " | ratio | goal |", "|---" * (len(DISPLAY_NAMES) + 3) + "|"]
    rows = {name: Row(results, name) for name in ROW_TITLES}
    for row in rows.values():
        lines += cpu_row(row) if row.rounds else []
    if rows["conversation"].rounds:
        lines += latency_rows(rows["conversation"]) + memory_rows(rows["conversation"])
    lines += capacity_row(results) + start_row(results) + size_rows(results)
    return "\n".join(lines + ["", *notes(results, rows)])


def table_row(title, cells, ratio="", goal=""):
    return [f"| {title} | " + " | ".join(cells.get(contestant, "") for contestant in DISPLAY_NAMES) + f" | {ratio} | {goal} |"]


def cpu_row(row):
    def format_cell(contestant):
        total, user, system = (row.median(contestant, lambda measurement: measurement[key]) for key in ("cpu_us", "user_us", "system_us"))
        return f"{total:.0f} µs ({user:.0f} user, {system:.0f} system)"

    ratios, goals = [], []
    for reference in row.contestants[1:]:
        ratio = row.cpu_ratio(reference)
        ratios.append(f"{ratio:.2f}× {DISPLAY_NAMES[reference]}")
        if (limit := CPU_RATIO_GOALS.get((row.name, reference))) is not None:
            goals.append(format_goal(f"≤ {limit:g}× {DISPLAY_NAMES[reference]}", ratio <= limit))
    title = ROW_TITLES[row.name].format(sessions=row.measurements[0]["sessions"])
    return table_row(title, {contestant: format_cell(contestant) for contestant in row.contestants}, ", ".join(ratios), ", ".join(goals))


def format_goal(goal, met):
    return f"{goal} {'met' if met else '**missed**'}"


def latency_rows(row):
    def p50_and_p99(contestant, direction):
        values = [row.median(contestant, lambda measurement: measurement[direction] and measurement[direction][part]) for part in ("p50", "p99")]
        return "–" if None in values else f"{values[0]:.2f} / {values[1]:.2f} ms"

    own = {
        (direction, part): row.median("voxbridge", lambda measurement: measurement[direction] and measurement[direction][part])
        for direction in ("up", "down")
        for part in ("p50", "p99")
    }
    goals = {"up": "", "down": ""}
    if None not in own.values():
        goals["up"] = format_goal("≤ 0.3 / 1 ms", own["up", "p50"] <= 0.3 and own["up", "p99"] <= 1)
        goals["down"] = format_goal("≤ 0.15 / 0.5 ms", own["down", "p50"] <= 0.15 and own["down", "p99"] <= 0.5)
    lines = []
    for direction, title in (("up", "added latency up, p50 / p99"), ("down", "added latency down, p50 / p99")):
        lines += table_row(title, {contestant: p50_and_p99(contestant, direction) for contestant in row.contestants}, "", goals[direction])
    return lines


def memory_rows(row):
    lines = []
    for key, title, maximum in (("active_kb", "memory per active session", 120), ("idle_kb", "memory per idle session", 16)):
        values = {contestant: row.median(contestant, lambda measurement: measurement[key]) for contestant in row.contestants}
        cells = {contestant: "–" if value is None else f"{value:.0f} kB" for contestant, value in values.items()}
        own = values.get("voxbridge")
        lines += table_row(title, cells, "", "" if own is None else format_goal(f"≤ {maximum} kB", own <= maximum))
    return lines


def capacity_row(results):
    if not (capacity := results.get("capacity")):
        return []
    first, last = capacity["tried"]
    carried = capacity["sessions"]
    cell = f"fewer than {first}" if carried is None else f"{carried}{' or more' if carried == last else ''}"
    if late := capacity["generator_was_late_at"]:
        cell += f" (the generator was late at {', '.join(map(str, late))})"
    title = "live conversations on one core, added p99 ≤ 5 ms, nothing lost"
    return table_row(title, {"voxbridge": cell}, "", format_goal("≥ 1800", (carried or 0) >= 1800))


def start_row(results):
    if not (starts := results.get("start_ms")):
        return []
    cells = {contestant: f"{ms:.0f} ms" for contestant, ms in starts.items()}
    return table_row("start to listening", cells, "", format_goal("≤ 20 ms", starts["voxbridge"] <= 20))


def size_rows(results):
    if not (size := results.get("stripped_bytes")):
        return []
    lines = table_row("binary, stripped", {"voxbridge": f"{size / 1e6:.1f} MB"}, "", format_goal("≤ 12 MB", size <= 12e6))
    if build_s := results.get("build_s"):
        lines += table_row("build from nothing", {"voxbridge": f"{build_s:.0f} s"}, "", "noted")
    return lines


def notes(results, rows):
    about = results["about"]
    changed = " with changes" if about["changed_since"] else ""
    yield (
        f"{about['program']}{changed}; {about['cores']} cores, {about['processor']}, Linux {about['kernel']}; "
        f"{', '.join(about['relays'])}, Python {about['python']} with {', '.join(about['requirements'])}."
    )
    if results["options"]["real_time"]:
        yield "Measured at real-time priority."
    for row in rows.values():
        if row.excluded_rounds:
            yield f"{row.name}: {row.excluded_rounds} of {row.excluded_rounds + len(row.rounds)} rounds left out, the generator was late."
        lost = dict.fromkeys(row.contestants, 0)
        for measurement in row.measurements:
            if measurement["who"] in lost:
                lost[measurement["who"]] += measurement["lost"] + measurement["sessions_lost"]
        for contestant, count in lost.items():
            if count:
                yield f"{row.name}, {DISPLAY_NAMES[contestant]}: {count} samples or sessions were lost, repeated, misplaced or not recognised."


def write_results(results, out):
    """Writes results.json, and cpu.svg for the rows measured so far."""
    (out / "results.json").write_text(json.dumps(results, indent=1, default=str) + "\n")
    (out / "cpu.svg").write_text(render_cpu_svg(results))


def render_cpu_svg(results):
    """Plots the CPU time per session and second. Bars are medians, with user time in the dark part and system time in the
    rest. Dots are rounds."""
    bars = [(row, contestant) for row in (Row(results, name) for name in ROW_TITLES) for contestant in row.contestants]
    maximum = max((measurement["cpu_us"] for row, contestant in bars for measurement in row.measurements), default=1)
    width, height, left, base = 110 * len(bars) + 70, 330, 60, 260
    y_of = lambda us: base - 220 * us / maximum
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<text x="10" y="20" font-size="13">CPU per session and second of audio, µs</text>',
    ]
    for quarter in range(5):
        us = maximum * quarter / 4
        parts.append(f'<path d="M{left} {y_of(us):.1f}H{width - 10}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y_of(us) + 4:.1f}" text-anchor="end">{us:.0f}</text>')
    for number, (row, contestant) in enumerate(bars):
        parts += render_bar(row, contestant, left + 20 + 110 * number, y_of, base)
    return "\n".join([*parts, "</svg>", ""])


def render_bar(row, contestant, x, y_of, base):
    total, user = row.median(contestant, lambda measurement: measurement["cpu_us"]), row.median(contestant, lambda measurement: measurement["user_us"])
    colour, middle = COLOURS[contestant], x + 35
    yield f'<rect x="{x}" y="{y_of(total):.1f}" width="70" height="{base - y_of(total):.1f}" fill="{colour}" opacity="0.5"/>'
    yield f'<rect x="{x}" y="{y_of(user):.1f}" width="70" height="{base - y_of(user):.1f}" fill="{colour}"/>'
    for by_contestant in row.rounds:
        yield f'<circle cx="{middle}" cy="{y_of(by_contestant[contestant]["cpu_us"]):.1f}" r="3" fill="black"/>'
    sessions = row.measurements[0]["sessions"]
    for offset, words in ((16, f"{DISPLAY_NAMES[contestant]} {total:.0f}"), (32, row.name), (48, f"{sessions} sessions")):
        yield f'<text x="{middle}" y="{base + offset}" text-anchor="middle">{words}</text>'
