//! The terminal screen: redrawn in place, and restored however the view ends.

use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};
use std::panic;

use super::{Canvas, size};

/// Switches to the alternate screen, without cursor and automatic wrapping (xterm's 1049, 25 and 7), and back.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l\u{1b}[2J";
const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";
/// Synchronised output (mode 2026): terminals that support it show a frame at once; others ignore it.
const FRAME_BEGINS: &str = "\u{1b}[?2026h\u{1b}[H";
const FRAME_ENDS: &str = "\u{1b}[?2026l";
/// The size assumed for a terminal that does not report one.
const USUAL: (usize, usize) = (80, 24);

/// The terminal while the view owns it. Restored on drop.
pub(crate) struct Screen {
    colour: bool,
    /// The last frame, as it was written.
    last: RefCell<String>,
}

/// Returns true if the live view can be shown: standard output is a terminal that can move its cursor.
pub(crate) fn is_capable() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stdout().is_terminal() && !dumb
}

impl Screen {
    /// Takes over the terminal.
    pub(crate) fn enter() -> io::Result<Self> {
        // https://no-color.org: set and not empty.
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let before = panic::take_hook();
        // Without this, a panic's message would disappear with the alternate screen.
        panic::set_hook(Box::new(move |said| {
            let _ = write(LEAVE);
            before(said);
        }));
        write(ENTER)?;
        Ok(Screen { colour, last: RefCell::default() })
    }

    /// Restores the terminal until [`Self::resume`].
    pub(crate) fn leave(&self) -> io::Result<()> {
        write(LEAVE)
    }

    /// Takes it over again, and shows the last frame until the next one is drawn.
    pub(crate) fn resume(&self) -> io::Result<()> {
        write(&format!("{ENTER}{}", self.last.borrow()))
    }

    /// Returns the current size, and whether to use colours.
    pub(crate) fn canvas(&self) -> Canvas {
        let (width, height) = size().unwrap_or(USUAL);
        Canvas { width, height, colour: self.colour }
    }

    /// Draws a frame over the last one.
    pub(crate) fn draw(&self, lines: &[String]) -> io::Result<()> {
        // Each line is cleared before it is written: after a full line the cursor is still on its last character. The
        // last line has no line feed, which would scroll.
        let frame = format!("{FRAME_BEGINS}\u{1b}[K{}{FRAME_ENDS}", lines.join("\r\n\u{1b}[K"));
        write(&frame)?;
        *self.last.borrow_mut() = frame;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let _ = write(LEAVE);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
