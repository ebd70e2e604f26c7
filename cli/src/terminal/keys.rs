//! Key presses, read without waiting for the end of a line.

use std::io::{self, IsTerminal, Read};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// The keyboard while the view owns it. Its settings are restored on drop.
pub(crate) struct Keys {
    before: Option<Termios>,
    pressed: mpsc::Receiver<u8>,
}

impl Keys {
    /// Takes over the keyboard, if standard input is a terminal. Ctrl-C remains a signal.
    pub(crate) fn take() -> io::Result<Self> {
        let (sender, pressed) = mpsc::channel(16);
        if !io::stdin().is_terminal() {
            return Ok(Keys { before: None, pressed });
        }
        let before = tcgetattr(io::stdin())?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
        // A separate thread: a read from a terminal cannot be cancelled, and nothing may wait for it at exit.
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

    /// Waits until the user presses `q` or Ctrl-D; for ever without a keyboard.
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
            // If the terminal is gone, there is nothing to restore.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}
