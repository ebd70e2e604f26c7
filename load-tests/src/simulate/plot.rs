//! Delay against polls as an SVG chart: one line per policy, both axes logarithmic, names at the lines' ends.

use std::fmt::Write;

use super::compare::Simulated;
use super::table::Row;

const WIDTH: f64 = 840.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;
/// The distance between the baselines of two names.
const NAME_HEIGHT: f64 = 16.0;

/// A logarithmic axis.
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// Creates an axis over these values with some margin, from one coordinate to another.
    fn over(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min).max(1e-3);
        let most = values.fold(1e-3, f64::max);
        Axis { least: least / 1.2, most: most * 1.2, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let share = (value.max(1e-3) / self.least).ln() / (self.most / self.least).ln();
        self.from + (self.to - self.from) * share
    }

    /// Returns its marks: 1, 2 and 5 times powers of ten.
    fn marks(&self) -> impl Iterator<Item = f64> {
        let steps = (-3..6).flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(power)));
        steps.filter(|mark| (self.least..=self.most).contains(mark))
    }
}

/// What one curve shows.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name, at its end.
    pub name: String,
    /// Its colour in SVG.
    pub colour: &'static str,
    /// Drawn thick.
    pub is_ours: bool,
    /// Polls a feed and day, and the mean delay in minutes.
    pub points: Vec<(f64, f64)>,
}

/// Our own colour.
const OURS: &str = "#c2185b";

impl Line {
    fn of(policy: Simulated, rows: &[Row]) -> Self {
        let colour = match policy {
            Simulated::Feedfleet => OURS,
            Simulated::Newsgator => "#1f5fbf",
            Simulated::Fixed => "#777777",
            Simulated::Miniflux => "#8a6d1d",
            Simulated::Newsblur => "#2e7d32",
            Simulated::Commafeed => "#e06c00",
            Simulated::SquareRoot => "#7b4fb5",
            Simulated::Oracle => "#111111",
        };
        let own = rows.iter().filter(|row| row.policy == policy).map(|row| row.figures);
        let points = own.map(|own| (own.polls_per_feed_day, own.weighted_mean_minutes)).collect();
        Line { name: policy.to_string(), colour, is_ours: policy == Simulated::Feedfleet, points }
    }

    /// Returns the lines of one's own fleet: as it is configured, and as it would be.
    pub fn of_own(name: &str, is_changed: bool, points: Vec<(f64, f64)>) -> Self {
        let colour = if is_changed { OURS } else { "#1f5fbf" };
        Line { name: name.to_owned(), colour, is_ours: is_changed, points }
    }
}

/// Returns the chart of policies; `title` says what was simulated.
pub fn svg(rows: &[Row], title: &str) -> String {
    chart(&Simulated::ALL.map(|policy| Line::of(policy, rows)), title)
}

/// Returns a chart of these lines.
pub fn chart(lines: &[Line], title: &str) -> String {
    let points = lines.iter().flat_map(|line| line.points.iter().copied());
    let x = Axis::over(points.clone().map(|point| point.0), LEFT, WIDTH - RIGHT);
    let y = Axis::over(points.map(|point| point.1), HEIGHT - BOTTOM, TOP);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\" fill=\"#222\">{}</text>\n",
        escaped(title)
    );
    axes(&mut text, &x, &y);
    let mut curves: Vec<Curve> = lines.iter().filter_map(|line| Curve::of(line, &x, &y)).collect();
    spread_names(&mut curves);
    curves.iter().for_each(|curve| curve.draw(&mut text));
    text.push_str("</svg>\n");
    text
}

fn axes(text: &mut String, x: &Axis, y: &Axis) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    // Writing to a string does not fail, here and below.
    for mark in x.marks() {
        let at = x.place(mark);
        let _ = writeln!(
            text,
            "<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#e4e4e4\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{mark}</text>",
            bottom + 18.0
        );
    }
    for mark in y.marks() {
        let at = y.place(mark);
        let _ = writeln!(
            text,
            "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#e4e4e4\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{mark}</text>",
            LEFT - 8.0,
            at + 4.0
        );
    }
    let _ = writeln!(
        text,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#222\">polls a feed and day</text>\n\
         <text transform=\"translate(18 {:.1}) rotate(-90)\" text-anchor=\"middle\" fill=\"#222\">mean delay, minutes</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 12.0,
        (TOP + bottom) / 2.0
    );
}

/// A line's points, and the position of its name.
struct Curve<'a> {
    line: &'a Line,
    points: Vec<(f64, f64)>,
    name_at: f64,
}

impl<'a> Curve<'a> {
    fn of(line: &'a Line, x: &Axis, y: &Axis) -> Option<Self> {
        let mut points: Vec<(f64, f64)> =
            line.points.iter().map(|(polls, minutes)| (x.place(*polls), y.place(*minutes))).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        // The oracle makes the same few polls at every budget.
        points.dedup_by(|one, other| (one.0 - other.0).abs() < 1.0 && (one.1 - other.1).abs() < 1.0);
        let name_at = points.last()?.1 + 4.0;
        Some(Curve { line, points, name_at })
    }

    fn draw(&self, text: &mut String) {
        let Line { name, colour, is_ours, .. } = self.line;
        let width = if *is_ours { 3.5 } else { 1.8 };
        let line: Vec<String> = self.points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>",
            line.join(" ")
        );
        for (x, y) in &self.points {
            let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>");
        }
        let end = self.points.last().map_or(0.0, |last| last.0);
        let weight = if *is_ours { " font-weight=\"bold\"" } else { "" };
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\"{weight}>{}</text>",
            end + 10.0,
            self.name_at,
            escaped(name)
        );
    }
}

/// Moves overlapping names apart, downwards.
fn spread_names(curves: &mut [Curve<'_>]) {
    let end = |curve: &Curve<'_>| curve.points.last().map_or(0.0, |last| last.0);
    curves.sort_by(|one, other| one.name_at.total_cmp(&other.name_at));
    for at in 1..curves.len() {
        let above = curves[..at].iter().filter(|above| (end(above) - end(&curves[at])).abs() < 90.0);
        let lowest = above.map(|above| above.name_at + NAME_HEIGHT).fold(curves[at].name_at, f64::max);
        curves[at].name_at = lowest;
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Figures;

    fn row(policy: Simulated, polls: f64, minutes: f64) -> Row {
        let figures = Figures { polls_per_feed_day: polls, weighted_mean_minutes: minutes, ..Figures::default() };
        Row { policy, budget: 1.0, figures }
    }

    #[test]
    fn each_policy_has_a_line_and_names_stand_apart() {
        let rows = [
            row(Simulated::Feedfleet, 4.0, 40.0),
            row(Simulated::Feedfleet, 16.0, 13.0),
            row(Simulated::SquareRoot, 16.0, 13.1),
            row(Simulated::Oracle, 0.4, 1.5),
            row(Simulated::Oracle, 0.4, 1.5),
        ];
        let picture = svg(&rows, "a < b");
        assert!(picture.contains(">a &lt; b<"));
        assert_eq!(picture.matches("<polyline").count(), 3);
        assert_eq!(picture.matches("<circle").count(), 4);
        let height_of = |name: &str| -> f64 {
            let before = &picture[..picture.find(&format!(">{name}</text>")).unwrap()];
            let y = &before[before.rfind(" y=\"").unwrap() + 4..];
            y[..y.find('"').unwrap()].parse().unwrap()
        };
        assert!((height_of("feedfleet") - height_of("square-root")).abs() >= NAME_HEIGHT);
    }
}
