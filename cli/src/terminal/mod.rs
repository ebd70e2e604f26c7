//! The terminal: a screen that is restored at the end, lines that never exceed its width, its keys and its size.

mod display;
mod ink;
mod keys;
mod layout;
mod screen;
mod waiting;

use std::io::IsTerminal;

pub(crate) use display::{cut, padded, width_of, wrapped};
pub(crate) use ink::{Ink, Line, paint};
pub(crate) use keys::{Keys, Suspension};
pub(crate) use layout::{columns, rows, sparkline};
pub(crate) use screen::{Screen, is_capable};
pub(crate) use waiting::Waiting;

/// Where to draw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Canvas {
    /// Columns.
    pub(crate) width: usize,
    /// Lines.
    pub(crate) height: usize,
    /// Whether to use colours.
    pub(crate) colour: bool,
}

impl Canvas {
    /// Returns an empty line as wide as the canvas.
    pub(crate) fn line(self) -> Line {
        Line::new(self.width, self.colour)
    }

    /// Returns one of two columns, with room for a separator between them.
    pub(crate) fn half(self) -> Canvas {
        Canvas { width: self.width.saturating_sub(3) / 2, ..self }
    }
}

/// Returns the columns and lines of the terminal at standard output, if it reports a size.
pub(crate) fn size() -> Option<(usize, usize)> {
    let size = terminal_size::terminal_size().map(|(width, height)| (width.0.into(), height.0.into()));
    size.filter(|(width, height)| *width > 0 && *height > 0)
}

/// Returns the width of the terminal at standard output; `None` if it is not a terminal. Tables for people are cut to
/// it, output for programs never is.
pub(crate) fn width() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    size().map(|(width, _)| width)
}
