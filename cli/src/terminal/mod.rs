//! The terminal: a screen that is given back as it was, lines that never spill over its edge, its keys and its size.

mod ink;
mod keys;
mod layout;
mod screen;

use std::io::IsTerminal;

pub(crate) use ink::{Ink, Line};
pub(crate) use keys::Keys;
pub(crate) use layout::{columns, rows, sparkline, thousands};
pub(crate) use screen::{Screen, is_capable};

/// Where to draw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Canvas {
    /// Columns.
    pub(crate) width: usize,
    /// Lines.
    pub(crate) height: usize,
    /// With colours?
    pub(crate) colour: bool,
}

impl Canvas {
    /// An empty line as wide as the canvas.
    pub(crate) fn line(self) -> Line {
        Line::new(self.width, self.colour)
    }

    /// One of two columns, with room for a rule between them.
    pub(crate) fn half(self) -> Canvas {
        Canvas { width: self.width.saturating_sub(3) / 2, ..self }
    }
}

/// Columns and lines of the terminal that standard output is, if it is one that says them.
pub(crate) fn size() -> Option<(usize, usize)> {
    let size = terminal_size::terminal_size().map(|(width, height)| (width.0.into(), height.0.into()));
    size.filter(|(width, height)| *width > 0 && *height > 0)
}

/// Columns of standard output, if it is a terminal: tables are cut to it. What is read by a program is never cut.
pub(crate) fn width() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    size().map(|(width, _)| width)
}
