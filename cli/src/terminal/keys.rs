//! Key presses, read without waiting for the end of a line, and Ctrl-Z.

use std::io::{self, IsTerminal, Read};

use rustix::process::{Signal as Number, getpgrp, getpid, getsid, kill_process};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
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
        let before = take_over()?;
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

    /// Restores the settings until [`Self::resume`].
    pub(crate) fn release(&self) -> io::Result<()> {
        match &self.before {
            Some(before) => Ok(tcsetattr(io::stdin(), OptionalActions::Now, before)?),
            None => Ok(()),
        }
    }

    /// Takes over the keyboard again, if it was taken.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        if self.before.is_some() {
            self.before = Some(take_over()?);
        }
        Ok(())
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
        // If the terminal is gone, there is nothing to restore.
        let _ = self.release();
    }
}

/// Turns lines and echo off; returns the settings before.
fn take_over() -> io::Result<Termios> {
    let before = tcgetattr(io::stdin())?;
    let mut modes = before.clone();
    modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
    Ok(before)
}

/// Ctrl-Z: the program stops until the shell continues it.
pub(crate) struct Suspension(Option<Signal>);

impl Suspension {
    /// Catches it from now on. Not in the first process group of a session: there is no shell that could continue the program, and
    /// the system ignores the key.
    pub(crate) fn caught() -> io::Result<Self> {
        let is_job = getsid(None)? != getpgrp();
        let key = is_job.then(|| signal(SignalKind::from_raw(Number::TSTP.as_raw()))).transpose()?;
        Ok(Suspension(key))
    }

    /// Waits for the key.
    pub(crate) async fn pressed(&mut self) {
        match &mut self.0 {
            Some(key) => {
                key.recv().await;
            }
            None => std::future::pending().await,
        }
    }

    /// Stops this process, and returns when it is continued.
    pub(crate) fn stop() -> io::Result<()> {
        Ok(kill_process(getpid(), Number::STOP)?)
    }
}
