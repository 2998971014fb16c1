"""What `run` has measured, as medians, a table in Markdown, JSON and a picture."""

import json
import statistics
from pathlib import Path

NAMES = {"voxbridge": "voxbridge", "relay": "relay", "python": "Python"}
TITLES = {
    "conversation": "CPU per session-second, `conversation`, {sessions} sessions",
    "many": "the same, {sessions} sessions",
    "silence": "the same, `speech` while nobody speaks, {sessions} sessions",
}
# What voxbridge's CPU time may be, as a multiple of somebody's.
GOALS = {("conversation", "relay"): 1.0, ("conversation", "python"): 0.25, ("many", "relay"): 1.0, ("silence", "relay"): 1.15}
COLOURS = {"voxbridge": "#2a6f97", "relay": "#7f8c8d", "python": "#e0a030"}


def plain(options):
    return {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}


def brief(figures):
    """One turn in a line."""
    words = [f"{figures['cpu_us']:.0f} us ({figures['user_us']:.0f} user, {figures['system_us']:.0f} system)"]
    words += [f"{way} p99 {figures[way]['p99']:.2f} ms" for way in ("up", "down") if figures[way]]
    words += [f"{figures['lost']} samples lost, repeated, misplaced or not recognised"] if figures["lost"] else []
    words += [f"{figures['sessions_lost']} sessions lost"] if figures["sessions_lost"] else []
    words += [] if figures["valid"] else ["the generator was late"]
    return ", ".join(words)


def worst_p99(figures):
    """Of what is added up and down, ms."""
    return max((figures[way]["p99"] for way in ("up", "down") if figures[way]), default=0.0)


class Row:
    """One row's rounds. A round counts where the generator kept time for all who took part in it."""

    def __init__(self, results, name):
        self.name = name
        self.all = [turn for turn in results["rounds"] if turn["row"] == name]
        rounds = {}
        for turn in self.all:
            rounds.setdefault(turn["round"], {})[turn["who"]] = turn
        full = max((len(turns) for turns in rounds.values()), default=0)
        complete = [turns for turns in rounds.values() if len(turns) == full]
        self.rounds = [turns for turns in complete if all(turn["valid"] for turn in turns.values())]
        self.left_out = len(complete) - len(self.rounds)
        self.who = [name for name in NAMES if any(name in turns for turns in self.rounds)]

    def median(self, who, pick):
        values = [pick(turns[who]) for turns in self.rounds if who in turns]
        values = [value for value in values if value is not None]
        return statistics.median(values) if values else None

    def ratio(self, to):
        """The median of the rounds' own ratios."""
        if to not in self.who or "voxbridge" not in self.who:
            return None
        return statistics.median(turns["voxbridge"]["cpu_us"] / turns[to]["cpu_us"] for turns in self.rounds)


def table(results):
    """Markdown: what was measured, by whom, how they compare and what was wanted."""
    lines = ["| | voxbridge | relay | Python | ratio | goal |", "|---|---|---|---|---|---|"]
    rows = {name: Row(results, name) for name in TITLES}
    for row in rows.values():
        lines += cpu_line(row) if row.rounds else []
    if rows["conversation"].rounds:
        lines += latency_lines(rows["conversation"]) + memory_lines(rows["conversation"])
    lines += capacity_line(results) + start_line(results) + size_lines(results)
    return "\n".join(lines + ["", *notes(results, rows)])


def line(title, cells, ratio="", goal=""):
    return [f"| {title} | " + " | ".join(cells.get(who, "") for who in NAMES) + f" | {ratio} | {goal} |"]


def cpu_line(row):
    def cell(who):
        total, user, system = (row.median(who, lambda turn: turn[key]) for key in ("cpu_us", "user_us", "system_us"))
        return f"{total:.0f} µs ({user:.0f} user, {system:.0f} system)"

    ratios, goals = [], []
    for to in ("relay", "python"):
        if (ratio := row.ratio(to)) is not None:
            ratios.append(f"{ratio:.2f}× {NAMES[to]}")
            goals.append(judged(f"≤ {GOALS[row.name, to]:g}×", ratio <= GOALS[row.name, to]))
    title = TITLES[row.name].format(sessions=row.all[0]["sessions"])
    return line(title, {who: cell(who) for who in row.who}, ", ".join(ratios), ", ".join(goals))


def judged(goal, met):
    return f"{goal} {'met' if met else '**missed**'}"


def latency_lines(row):
    def both(who, way):
        values = [row.median(who, lambda turn: turn[way] and turn[way][part]) for part in ("p50", "p99")]
        return "–" if None in values else f"{values[0]:.2f} / {values[1]:.2f} ms"

    ours = {(way, part): row.median("voxbridge", lambda turn: turn[way] and turn[way][part])
            for way in ("up", "down") for part in ("p50", "p99")}
    goals = {"up": "", "down": ""}
    if None not in ours.values():
        goals["up"] = judged("p99 ≤ 0.5 ms", ours["up", "p99"] <= 0.5)
        goals["down"] = judged("≤ 0.15 / 0.5 ms", ours["down", "p50"] <= 0.15 and ours["down", "p99"] <= 0.5)
    lines = []
    for way, title in (("up", "added latency up, p50 / p99"), ("down", "added latency down, p50 / p99")):
        lines += line(title, {who: both(who, way) for who in row.who}, "", goals[way])
    return lines


def memory_lines(row):
    lines = []
    for key, title, most in (("active_kb", "memory per active session", 200), ("idle_kb", "memory per idle session", 24)):
        values = {who: row.median(who, lambda turn: turn[key]) for who in row.who}
        cells = {who: "–" if value is None else f"{value:.0f} kB" for who, value in values.items()}
        ours = values.get("voxbridge")
        lines += line(title, cells, "", "" if ours is None else judged(f"≤ {most} kB", ours <= most))
    return lines


def capacity_line(results):
    if not (found := results.get("capacity")):
        return []
    first, last = found["tried"]
    carried = found["sessions"]
    cell = f"fewer than {first}" if carried is None else f"{carried}{' or more' if carried == last else ''}"
    if late := found["generator_was_late_at"]:
        cell += f" (the generator was late at {', '.join(map(str, late))})"
    title = "live conversations on one core, added p99 ≤ 5 ms, nothing lost"
    return line(title, {"voxbridge": cell}, "", judged("≥ 1800", (carried or 0) >= 1800))


def start_line(results):
    if not (starts := results.get("start_ms")):
        return []
    cells = {who: f"{ms:.0f} ms" for who, ms in starts.items()}
    return line("start to listening", cells, "", judged("≤ 20 ms", starts["voxbridge"] <= 20))


def size_lines(results):
    if not (size := results.get("stripped_bytes")):
        return []
    lines = line("binary, stripped", {"voxbridge": f"{size / 1e6:.1f} MB"}, "", judged("≤ 12 MB", size <= 12e6))
    if build_s := results.get("build_s"):
        lines += line("build from nothing", {"voxbridge": f"{build_s:.0f} s"}, "", "noted")
    return lines


def notes(results, rows):
    about = results["about"]
    changed = " with changes" if about["changed_since"] else ""
    of = f"Commit {about['commit']}{changed}" if about["commit"] else "A program that was given, of a commit not known here"
    yield (
        f"{of}; {about['cores']} cores, {about['processor']}, Linux {about['kernel']}; "
        f"{about['nginx']}, Python {about['python']} with {', '.join(about['requirements'])}."
    )
    for row in rows.values():
        if row.left_out:
            yield f"{row.name}: {row.left_out} of {row.left_out + len(row.rounds)} rounds left out, the generator was late."
        lost = {who: sum(turn["lost"] + turn["sessions_lost"] for turn in row.all if turn["who"] == who) for who in row.who}
        for who, count in lost.items():
            if count:
                yield f"{row.name}, {NAMES[who]}: {count} samples or sessions were lost, repeated, misplaced or not recognised."


def write(results, out):
    """results.json, and cpu.svg for what there is by now."""
    (out / "results.json").write_text(json.dumps(results, indent=1, default=str) + "\n")
    (out / "cpu.svg").write_text(picture(results))


def picture(results):
    """CPU time a session and second: bars are medians (the dark part is the program's own, the rest the kernel's), dots the
    rounds."""
    bars = [(row, who) for row in (Row(results, name) for name in TITLES) for who in row.who]
    most = max((turn["cpu_us"] for row, who in bars for turn in row.all), default=1)
    width, height, left, base = 110 * len(bars) + 70, 330, 60, 260
    up = lambda us: base - 220 * us / most
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<text x="10" y="20" font-size="13">CPU per session and second of audio, µs</text>',
    ]
    for quarter in range(5):
        us = most * quarter / 4
        parts.append(f'<path d="M{left} {up(us):.1f}H{width - 10}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{up(us) + 4:.1f}" text-anchor="end">{us:.0f}</text>')
    for number, (row, who) in enumerate(bars):
        parts += bar(row, who, left + 20 + 110 * number, up, base)
    return "\n".join([*parts, "</svg>", ""])


def bar(row, who, x, up, base):
    total, user = row.median(who, lambda turn: turn["cpu_us"]), row.median(who, lambda turn: turn["user_us"])
    colour, middle = COLOURS[who], x + 35
    yield f'<rect x="{x}" y="{up(total):.1f}" width="70" height="{base - up(total):.1f}" fill="{colour}" opacity="0.5"/>'
    yield f'<rect x="{x}" y="{up(user):.1f}" width="70" height="{base - up(user):.1f}" fill="{colour}"/>'
    for turns in row.rounds:
        yield f'<circle cx="{middle}" cy="{up(turns[who]["cpu_us"]):.1f}" r="3" fill="black"/>'
    sessions = row.all[0]["sessions"]
    for offset, words in ((16, f"{NAMES[who]} {total:.0f}"), (32, row.name), (48, f"{sessions} sessions")):
        yield f'<text x="{middle}" y="{base + offset}" text-anchor="middle">{words}</text>'
