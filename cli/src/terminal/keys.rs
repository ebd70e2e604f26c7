//! Keys as they are pressed, without waiting for the end of a line.

use std::io::{self, IsTerminal, Read};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// The keyboard while it is ours. Dropping it gives it back as it was.
pub(crate) struct Keys {
    before: Option<Termios>,
    pressed: mpsc::Receiver<u8>,
}

impl Keys {
    /// Takes the keyboard, if standard input is one. Ctrl-C stays a signal.
    pub(crate) fn take() -> io::Result<Self> {
        let (sender, pressed) = mpsc::channel(16);
        if !io::stdin().is_terminal() {
            return Ok(Keys { before: None, pressed });
        }
        let before = tcgetattr(io::stdin())?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
        // A thread of its own: a read from a terminal cannot be given up, and nothing may wait for it at the end.
        std::thread::spawn(move || {
            let bytes = io::stdin().lock().bytes().map_while(Result::ok);
            for byte in bytes {
                if sender.blocking_send(byte).is_err() {
                    return;
                }
            }
        });
        Ok(Keys { before: Some(before), pressed })
    }

    /// Waits until somebody presses `q` or Ctrl-D; for ever when there is no keyboard.
    pub(crate) async fn quit(&mut self) {
        const END: u8 = 4;
        while let Some(key) = self.pressed.recv().await {
            if matches!(key, b'q' | b'Q' | END) {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // A terminal that has gone away needs nothing.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}
