//! Captures the log of the test's own process.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing_subscriber::EnvFilter;

/// Lines that were logged on this thread, on which a test's runtime runs everything, and on the liveness threads of
/// controllers that were started on it.
#[derive(Clone, Default)]
pub struct CapturedLog(Arc<Mutex<Vec<u8>>>);

/// With a single subscriber, tracing caches the interest of the first thread that reaches a call site, for all
/// threads: a test without log capture would silence the lines of a test with one. With a second subscriber tracing
/// asks each time.
static SECOND_SUBSCRIBER: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

/// Captures the log of this project until the guard is dropped.
pub fn capture() -> (CapturedLog, DefaultGuard) {
    capture_filtered("plimsoll=debug,plimsoll_storage=debug")
}

/// Like [`capture`], with this filter.
pub fn capture_filtered(filter: &str) -> (CapturedLog, DefaultGuard) {
    LazyLock::force(&SECOND_SUBSCRIBER);
    let log = CapturedLog::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_env_filter(EnvFilter::new(filter))
        .fmt_fields(plimsoll::cli::log::EscapedFields)
        .with_writer(move || writer.clone())
        .finish();
    (log, tracing::subscriber::set_default(subscriber))
}

impl CapturedLog {
    /// The whole text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no panic")).into_owned()
    }

    /// The last lines, for failure messages.
    pub fn tail(&self) -> String {
        let lines = self.lines(&[]);
        lines[lines.len().saturating_sub(25)..].join("\n")
    }

    /// The lines that contain all of these words.
    pub fn lines(&self, words: &[&str]) -> Vec<String> {
        let text = self.text();
        let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
        text.lines().filter(has_all).map(str::to_owned).collect()
    }

    /// Fails unless a line contains all of these words.
    pub fn assert_line(&self, words: &[&str]) {
        assert_line(&self.text(), words);
    }
}

/// Fails unless a line of the text contains all of these words.
pub fn assert_line(text: &str, words: &[&str]) {
    let found = text.lines().any(|line| words.iter().all(|word| line.contains(word)));
    let lines: Vec<_> = text.lines().collect();
    let end = lines[lines.len().saturating_sub(40)..].join("\n");
    assert!(found, "no line contains {words:?}; the log ends with\n{end}");
}

impl io::Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
