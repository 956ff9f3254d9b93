//! Owns what a recommender in the test's own process logs.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::EnvFilter;

/// Lines that were logged on this thread: all that a test's runtime does is done on it.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

/// Begins to keep the log, until the guard is dropped.
pub fn keep() -> (Log, DefaultGuard) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_env_filter(EnvFilter::new("plimsoll=debug,plimsoll_storage=debug"))
        .with_writer(move || writer.clone())
        .finish();
    (log, tracing::subscriber::set_default(subscriber))
}

impl Log {
    /// All of it.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no panic")).into_owned()
    }

    /// Fails unless there is a line with all of these words.
    pub fn assert_line(&self, words: &[&str]) {
        assert_line(&self.text(), words);
    }
}

/// Fails unless the text has a line with all of these words.
pub fn assert_line(text: &str, words: &[&str]) {
    let found = text.lines().any(|line| words.iter().all(|word| line.contains(word)));
    let lines: Vec<_> = text.lines().collect();
    let end = lines[lines.len().saturating_sub(40)..].join("\n");
    assert!(found, "no line with {words:?}; the end of the log is\n{end}");
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
