"""Publishes the measurements of `run` of one commit: README's block of figures, the table beside this file, and cpu.svg.

A block stands between `<!-- NAME -->` and `<!-- /NAME -->`. All else in the pages stays as it is.
"""

import re

import report

CONTESTANT_TITLES = {
    "voxbridge": "voxbridge",
    "nginx": "nginx relay",
    "haproxy": "haproxy relay",
    "rust": "plain bridge in Rust",
    "python": "in Python",
}
# What the published pages speak of.
NEEDED_ROWS = ("conversation", "many", "silence")


class PublishError(Exception):
    """These results cannot be published."""


def measured_commit(about):
    if about["changed_since"]:
        raise PublishError("the measured program has changes that are not committed: commit them and measure again")
    commit = re.search(r"\(([0-9a-f]{7,40})\)", about["program"])
    if not commit:
        raise PublishError(f"{about['program']!r} names no commit: measure a build with the profile dist in a git checkout")
    return commit[1]


def check_rows(results):
    for name in NEEDED_ROWS:
        contestants = report.DISPLAY_NAMES if name == "conversation" else ("voxbridge", "nginx", "haproxy")
        missing = set(contestants) - set(report.Row(results, name).contestants)
        if missing:
            raise PublishError(f"the row {name} has no valid round of {', '.join(sorted(missing))}: measure it again")


def publish(results, project):
    """Rewrites the figures of the pages of `project`."""
    commit = measured_commit(results["about"])
    check_rows(results)
    blocks = {
        project / "README.md": ("cost", readme_block(results, commit)),
        project / "examples/compare/README.md": ("figures", figures_block(results, commit)),
    }
    # Nothing is written if a marker is missing.
    texts = {page: replace_block(page, *block) for page, block in blocks.items()}
    for page, text in texts.items():
        page.write_text(text)
    (project / "examples/compare/cpu.svg").write_text(report.render_cpu_svg(results))


def replace_block(page, name, block):
    text = page.read_text()
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise PublishError(f"{page} needs one line {begin.strip()} and one line {end.strip()} around its figures")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{block}\n{end}{after}"


def readme_block(results, commit):
    row, many = report.Row(results, "conversation"), report.Row(results, "many")
    median = lambda contestant, *keys: row.median(contestant, lambda measurement: value_at(measurement, keys))
    sessions = [each.measurements[0]["sessions"] for each in (row, many)]
    cells = {
        "CPU per session and second": lambda name: f"{median(name, 'cpu_us'):.0f} µs",
        "voxbridge's CPU as a multiple of it (median of each round's ratio)": lambda name: "" if name == "voxbridge" else f"{row.cpu_ratio(name):.2f}",
        "memory of a talking session": lambda name: kilobytes(median(name, "active_kb")),
        "one second of the user reaches the model after its last sample, p50 / p99": lambda name: delay(
            median(name, "up", "p50"), median(name, "up", "p99")
        ),
    }
    table = [f"| | {' | '.join(CONTESTANT_TITLES.values())} |", "|---" * (len(CONTESTANT_TITLES) + 1) + "|"]
    table += [f"| {title} | {' | '.join(cell(name) for name in CONTESTANT_TITLES)} |" for title, cell in cells.items()]
    return "\n".join(
        [
            f"A conversation takes {median('voxbridge', 'cpu_us'):.0f} µs of CPU time a second with {sessions[0]} sessions on a core, "
            f"which is {row.cpu_ratio('nginx'):.2f} of what nginx\n"
            f"takes to copy the same frames and {row.cpu_ratio('rust'):.2f} of a plain bridge in Rust. It takes "
            f"{kilobytes(median('voxbridge', 'active_kb'))} of memory, and delays\n"
            f"the user's audio by {delay(median('voxbridge', 'up', 'p50'), median('voxbridge', 'up', 'p99'))} (p50 / p99).",
            "",
            f"![CPU time per session and second: voxbridge, nginx, haproxy, a plain bridge in Rust and one in Python at {sessions[0]} "
            f"sessions; the first three at {sessions[1]}](examples/compare/cpu.svg)",
            "",
            *table,
            "",
            f"Measured on commit {commit} with {machine(results)}, by a command that also writes this text\n"
            "([method and other figures](examples/compare/README.md)):\n"
            f"`{command_line(results)}`",
        ]
    )


def figures_block(results, commit):
    # Without the goals in the last column, which are for the project's own use.
    table = re.sub(r"^(\|.*\|)[^|\n]*\|$", r"\1", report.markdown_table(results), flags=re.MULTILINE)
    return "\n".join([f"Commit {commit}: `{command_line(results)}`", "", table])


def command_line(results):
    options = results["options"]
    words = ["examples/compare/run --publish", *(["--real-time"] if options["real_time"] else [])]
    words += [f"--rounds {options['rounds']}", f"--seconds {options['seconds']:g}", f"--only {','.join(options['only'])}"]
    return " ".join(words)


def machine(results):
    about = results["about"]
    return f"{about['cores']} cores, {about['processor']}"


def kilobytes(value):
    return "–" if value is None else f"{value:.0f} kB"


def delay(p50, p99):
    # Two digits tell the difference; more would be noise.
    digits = lambda ms: f"{ms:.0f}" if ms >= 10 else f"{ms:.1f}" if ms >= 2 else f"{ms:.2f}"
    return "–" if None in (p50, p99) else f"{digits(p50)} / {digits(p99)} ms"


def value_at(measurement, keys):
    for key in keys:
        measurement = measurement and measurement[key]
    return measurement
