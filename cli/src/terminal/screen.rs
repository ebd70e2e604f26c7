//! The terminal: drawn over in place, and given back as it was, however the view ends.

use std::io::{self, IsTerminal, Write};
use std::panic;

use super::{Canvas, size};

/// Another screen, no cursor, no wrapping at the edge (xterm's 1049, 25 and 7); and back.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l\u{1b}[2J";
const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";
/// Terminals that know it (mode 2026) show a frame as a whole; others ignore it.
const FRAME_BEGINS: &str = "\u{1b}[?2026h\u{1b}[H";
const FRAME_ENDS: &str = "\u{1b}[?2026l";
/// What a terminal that does not say its size most likely has.
const USUAL: (usize, usize) = (80, 24);

/// The terminal while it is ours. Dropping it gives it back.
pub(crate) struct Screen {
    colour: bool,
}

/// Whether the live view can be shown: standard output is a terminal that can move its cursor.
pub(crate) fn is_capable() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stdout().is_terminal() && !dumb
}

impl Screen {
    /// Takes the terminal.
    pub(crate) fn enter() -> io::Result<Self> {
        // https://no-color.org: set and not empty.
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let before = panic::take_hook();
        // What a panic says would else be gone with the screen that it is said on.
        panic::set_hook(Box::new(move |said| {
            let _ = write(LEAVE);
            before(said);
        }));
        write(ENTER)?;
        Ok(Screen { colour })
    }

    /// The size that it has now, and whether it is coloured.
    pub(crate) fn canvas(&self) -> Canvas {
        let (width, height) = size().unwrap_or(USUAL);
        Canvas { width, height, colour: self.colour }
    }

    /// Draws a frame over the last one.
    pub(crate) fn draw(&self, lines: &[String]) -> io::Result<()> {
        // Each line is cleared before it is written: behind a full one the cursor still stands on its last character. The
        // last one has no line feed, which would scroll.
        write(&format!("{FRAME_BEGINS}\u{1b}[K{}{FRAME_ENDS}", lines.join("\r\n\u{1b}[K")))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that has gone away needs nothing.
        let _ = write(LEAVE);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
