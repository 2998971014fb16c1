//! Plots the results: latency quantiles, and CPU cost by number of sessions.

use std::fmt::Write as _;

use crate::{run::Outcome, statistics::Histogram};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;
/// Space between the panels and below the last one.
const PANEL_GAP: f64 = 70.0;
/// Latency axis, ms: powers of ten from 0.01 to 1000.
const DECADES: std::ops::RangeInclusive<i32> = -2..=3;
/// Highest quantile, in nines.
const MAX_NINES: f64 = 4.0;
const COLOURS: [&str; 10] = [
    "#2266aa", "#cc5522", "#228855", "#884499", "#aa8800", "#555555", "#44aadd", "#dd8899", "#77bb44",
    "#111111",
];

/// Plots these runs as SVG.
pub(crate) fn render_svg(outcomes: &[Outcome]) -> String {
    let height = 2.0 * (HEIGHT + PANEL_GAP) + TOP;
    let mut picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{height}\" viewBox=\"0 0 {w} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        w = WIDTH + LEFT + 180.0
    );
    draw_latencies(&mut picture, outcomes);
    draw_costs(&mut picture, outcomes);
    picture.push_str("</svg>\n");
    picture
}

/// Plots quantiles against latency. Both axes are logarithmic, to show the slowest best.
fn draw_latencies(picture: &mut String, outcomes: &[Outcome]) {
    draw_text(
        picture,
        (LEFT, TOP - 16.0),
        "start",
        "Share of audio that arrived within this time, ms (beyond its due time)",
    );
    draw_axes(picture, TOP);
    let (first, last) = (f64::from(*DECADES.start()), f64::from(*DECADES.end()));
    for decade in DECADES {
        let x = LEFT + WIDTH * (f64::from(decade) - first) / (last - first);
        draw_line(picture, &[(x, TOP), (x, TOP + HEIGHT)], "#dddddd");
        draw_text(picture, (x, TOP + HEIGHT + 16.0), "middle", &format!("{}", 10f64.powi(decade)));
    }
    for (nines, name) in
        [(0.0, "0"), (0.301, "p50"), (1.0, "p90"), (2.0, "p99"), (3.0, "p99.9"), (4.0, "p99.99")]
    {
        let y = TOP + HEIGHT * (1.0 - nines / MAX_NINES);
        draw_line(picture, &[(LEFT, y), (LEFT + WIDTH, y)], "#dddddd");
        draw_text(picture, (LEFT - 6.0, y + 4.0), "end", name);
    }
    let curves = outcomes.iter().flat_map(|run| {
        let sessions = run.options.sessions;
        let (up, down) = (&run.tally.up_excess_latency, &run.tally.down_latency);
        [(format!("up, {sessions} sessions"), up), (format!("down, {sessions} sessions"), down)]
    });
    for (number, (name, histogram)) in curves.filter(|(_, histogram)| histogram.total() > 0).enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        draw_line(picture, &quantile_points(histogram, first, last), colour);
        draw_legend(picture, TOP, number, &name, colour);
    }
}

fn quantile_points(histogram: &Histogram, first: f64, last: f64) -> Vec<(f64, f64)> {
    const POINTS: u32 = 120;
    // More nines than samples cannot be shown.
    let most = (histogram.total() as f64).log10().min(MAX_NINES);
    let point = |step: u32| {
        let nines = most * f64::from(step) / f64::from(POINTS);
        let latency = histogram.quantile_ms(1.0 - 10f64.powf(-nines)).max(10f64.powf(first));
        let x = LEFT + WIDTH * ((latency.log10() - first) / (last - first)).min(1.0);
        (x, TOP + HEIGHT * (1.0 - nines / MAX_NINES))
    };
    (0..=POINTS).map(point).collect()
}

/// Plots bars of CPU time, each labelled with the generator's own lateness.
fn draw_costs(picture: &mut String, outcomes: &[Outcome]) {
    let top = TOP + HEIGHT + PANEL_GAP;
    draw_text(picture, (LEFT, top - 16.0), "start", "CPU per session and second, µs, by number of sessions");
    draw_axes(picture, top);
    let costs: Vec<_> = outcomes.iter().map(Outcome::cpu_us_per_session_second).collect();
    let most = costs.iter().map(|(all, ..)| *all).fold(1.0, f64::max) * 1.2;
    for quarter in 1..=4 {
        let y = top + HEIGHT * (1.0 - f64::from(quarter) / 4.0);
        draw_line(picture, &[(LEFT, y), (LEFT + WIDTH, y)], "#dddddd");
        draw_text(picture, (LEFT - 6.0, y + 4.0), "end", &format!("{:.0}", most * f64::from(quarter) / 4.0));
    }
    let each = WIDTH / outcomes.len().max(1) as f64;
    let wide = (0.5 * each).min(80.0);
    for (number, (run, (all, user, _))) in outcomes.iter().zip(costs).enumerate() {
        let middle = LEFT + each * (number as f64 + 0.5);
        let tall = |cost: f64| HEIGHT * cost / most;
        let bottom = top + HEIGHT;
        draw_bar(picture, (middle - wide / 2.0, bottom - tall(all)), (wide, tall(all)), COLOURS[1]);
        draw_bar(picture, (middle - wide / 2.0, bottom - tall(user)), (wide, tall(user)), COLOURS[0]);
        draw_text(picture, (middle, bottom - tall(all) - 20.0), "middle", &format!("{:.0}", all));
        let late = format!("late p99 {:.1} ms", run.tally.send_lateness.quantile_ms(0.99));
        draw_text(picture, (middle, bottom - tall(all) - 6.0), "middle", &late);
        draw_text(picture, (middle, bottom + 16.0), "middle", &run.options.sessions.to_string());
    }
    draw_legend(picture, top, 0, "user", COLOURS[0]);
    draw_legend(picture, top, 1, "system", COLOURS[1]);
}

// Writing into a String cannot fail.

fn draw_line(picture: &mut String, points: &[(f64, f64)], colour: &str) {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _written =
        writeln!(picture, "<polyline fill=\"none\" stroke=\"{colour}\" points=\"{}\"/>", points.join(" "));
}

fn draw_text(picture: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let _written =
        writeln!(picture, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

fn draw_bar(picture: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
    let _written = writeln!(
        picture,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
    );
}

fn draw_axes(picture: &mut String, top: f64) {
    let corners = [(0.0, 0.0), (0.0, HEIGHT), (WIDTH, HEIGHT)];
    let corners: Vec<(f64, f64)> = corners.iter().map(|(x, y)| (LEFT + x, top + y)).collect();
    draw_line(picture, &corners, "#333333");
}

fn draw_legend(picture: &mut String, top: f64, number: usize, name: &str, colour: &str) {
    let y = top + 14.0 + 18.0 * number as f64;
    draw_bar(picture, (LEFT + WIDTH + 14.0, y - 9.0), (10.0, 10.0), colour);
    draw_text(picture, (LEFT + WIDTH + 30.0, y), "start", name);
}
