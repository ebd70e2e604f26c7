//! A run as an SVG chart: stacked panels, lines with their names, events as bands.

use std::fmt::Write;

const WIDTH: f64 = 900.0;
const PANEL: f64 = 210.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 40.0;
/// The margin within a panel, above and below the lines.
const ROOM: f64 = 34.0;
const COLOURS: [&str; 8] = ["#1f5fbf", "#c2185b", "#2e7d32", "#e06c00", "#7b4fb5", "#8a6d1d", "#111111", "#777777"];

/// One panel of the chart.
pub(super) struct Panel {
    pub(super) title: String,
    /// Whether the horizontal axis is the run's time.
    pub(super) over_time: bool,
    /// A marked value on the horizontal axis.
    pub(super) mark: Option<f64>,
    pub(super) lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Panel {
    pub(super) fn over_time<N: Into<String>>(
        title: &str,
        lines: impl IntoIterator<Item = (N, Vec<(f64, f64)>)>,
    ) -> Self {
        let lines = lines.into_iter().map(|(name, line)| (name.into(), line)).collect();
        Panel { title: title.to_owned(), over_time: true, mark: None, lines }
    }
}

/// Returns the whole chart. Events are names with their start and end in seconds.
pub(super) fn svg(title: &str, events: &[(String, f64, f64)], panels: &[Panel]) -> String {
    let height = TOP + PANEL * panels.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\" fill=\"#222\">{}</text>\n",
        escaped(title)
    );
    for (place, panel) in panels.iter().enumerate() {
        panel.draw(&mut text, TOP + PANEL * place as f64, if panel.over_time { events } else { &[] });
    }
    text.push_str("</svg>\n");
    text
}

impl Panel {
    fn draw(&self, text: &mut String, top: f64, events: &[(String, f64, f64)]) {
        let (upper, lower, right) = (top + ROOM, top + PANEL - ROOM, WIDTH - RIGHT);
        let most = |of: fn(&(f64, f64)) -> f64| {
            let values = self.lines.iter().flat_map(|(_, line)| line.iter().map(of));
            values.filter(|value| value.is_finite()).fold(0.0, f64::max).max(1e-3)
        };
        let (widest, highest) = (most(|point| point.0).max(self.mark.unwrap_or(0.0)), most(|point| point.1) * 1.05);
        let x = |value: f64| LEFT + (right - LEFT) * value / widest;
        let y = |value: f64| lower - (lower - upper) * value / highest;
        // Writing to a string does not fail, here and below.
        let _ =
            writeln!(text, "<text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#222\">{}</text>", top + 16.0, escaped(&self.title));
        for (name, from, until) in events {
            let (from, until) = (x(*from), x(until.min(widest)));
            let _ = writeln!(
                text,
                "<rect x=\"{from:.1}\" y=\"{upper:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#fbe9c6\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#8a6d1d\">{}</text>",
                (until - from).max(1.0),
                lower - upper,
                from + 3.0,
                upper + 12.0,
                escaped(name)
            );
        }
        for mark in marks(highest) {
            let at = y(mark);
            let _ = writeln!(
                text,
                "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#e4e4e4\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{mark}</text>",
                LEFT - 8.0,
                at + 4.0
            );
        }
        for mark in marks(widest) {
            let at = x(mark);
            let _ = writeln!(
                text,
                "<path d=\"M{at:.1} {upper:.1}V{lower:.1}\" stroke=\"#eeeeee\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{mark} s</text>",
                lower + 15.0
            );
        }
        if let Some(mark) = self.mark {
            let at = x(mark);
            let _ = writeln!(
                text,
                "<path d=\"M{at:.1} {upper:.1}V{lower:.1}\" stroke=\"#c2185b\" stroke-dasharray=\"4\"/>"
            );
        }
        for (place, (name, line)) in self.lines.iter().enumerate() {
            let colour = COLOURS[place % COLOURS.len()];
            let points = line.iter().filter(|(at, value)| at.is_finite() && value.is_finite());
            let points: Vec<String> = points.map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value))).collect();
            let _ = writeln!(
                text,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
                points.join(" "),
                right + 10.0,
                upper + 10.0 + 15.0 * place as f64,
                escaped(name)
            );
        }
    }
}

/// Returns four to nine round numbers up to a value.
fn marks(most: f64) -> impl Iterator<Item = f64> {
    let power = 10_f64.powf((most / 4.0).log10().floor());
    let step = [5.0, 2.0, 1.0].into_iter().map(|times| times * power).find(|step| most / step >= 4.0).unwrap_or(power);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few marks")]
    let count = (most / step) as u32;
    (0..=count).map(move |number| (f64::from(number) * step * 1e6).round() / 1e6)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_events_and_marks_are_drawn() {
        let panel =
            Panel::over_time("lag & more", [("p50", vec![(0.0, 1.0), (60.0, 4.0)]), ("p99", vec![(0.0, f64::NAN)])]);
        let picture = svg("a < b", &[("outage".to_owned(), 10.0, 20.0)], &[panel]);
        assert!(picture.contains("a &lt; b") && picture.contains("lag &amp; more") && picture.contains(">outage<"));
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert!(!picture.contains("NaN"));
    }

    #[test]
    fn marks_are_round_and_few() {
        assert_eq!(marks(4.2).collect::<Vec<_>>(), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(marks(1000.0).collect::<Vec<_>>(), [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]);
        for most in [0.013, 0.5, 7.0, 99.0, 123_456.0] {
            assert!((4..=11).contains(&marks(most).count()), "{most}");
        }
    }
}
