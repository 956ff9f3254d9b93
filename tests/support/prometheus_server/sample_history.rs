//! Series over days, written as TSDB blocks, because scraping them would take days.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jiff::{SignedDuration, Timestamp};

type Value = Box<dyn Fn(Timestamp) -> Option<f64> + Send>;

/// Series between two times, sampled in equal steps.
pub struct History {
    from: Timestamp,
    to: Timestamp,
    step: SignedDuration,
    series: Vec<Series>,
    /// The time range in which series that are added next exist.
    within: (Timestamp, Timestamp),
}

struct Series {
    labels: BTreeMap<String, String>,
    within: (Timestamp, Timestamp),
    value: Value,
}

// === impl History ===

impl History {
    /// An empty history.
    pub fn new(from: Timestamp, to: Timestamp, step: SignedDuration) -> Self {
        assert!(step.is_positive(), "time goes forward");
        Self { from, to, step, series: Vec::new(), within: (from, to) }
    }

    /// Restricts series that are added next to this time range, and does not call their functions outside of it:
    /// thousands of short-lived series are then written as fast as a few long ones.
    #[must_use]
    pub fn existing_between(mut self, from: Timestamp, to: Timestamp) -> Self {
        self.within = (from, to);
        self
    }

    /// Adds a series; `None` values leave a gap.
    #[must_use]
    pub fn series(
        mut self,
        name: &str,
        labels: &[(&str, &str)],
        value: impl Fn(Timestamp) -> Option<f64> + Send + 'static,
    ) -> Self {
        let labels = labels.iter().copied().chain([("__name__", name)]);
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let within = self.within;
        self.series.push(Series { labels: labels.collect(), within, value: Box::new(value) });
        self
    }

    /// Writes blocks into a folder, which a server can serve immediately.
    pub async fn write(self, writer: &Path, folder: &Path) {
        let (writer, folder) = (writer.to_owned(), folder.to_owned());
        tokio::task::spawn_blocking(move || self.pipe(&writer, folder)).await.expect("no panic");
    }

    fn pipe(self, writer: &Path, folder: PathBuf) {
        // It ends when the pipe closes, even if this process is killed.
        let mut child = Command::new(writer)
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the writer starts");
        let pipe = BufWriter::with_capacity(1 << 20, child.stdin.take().expect("piped"));
        self.write_records(pipe).expect("all samples are written");
        assert!(child.wait().expect("it ends").success(), "the writer of history failed");
    }

    fn write_records(&self, mut pipe: impl std::io::Write) -> std::io::Result<()> {
        for series in &self.series {
            serde_json::to_writer(&mut pipe, &series.labels)?;
            writeln!(pipe)?;
        }
        writeln!(pipe)?;
        let mut at = self.from;
        while at <= self.to {
            for (index, Series { within, value, .. }) in self.series.iter().enumerate() {
                if !(within.0..=within.1).contains(&at) {
                    continue;
                }
                if let Some(value) = value(at) {
                    pipe.write_all(&(index as u32).to_le_bytes())?;
                    pipe.write_all(&at.as_millisecond().to_le_bytes())?;
                    pipe.write_all(&value.to_le_bytes())?;
                }
            }
            at = at.checked_add(self.step).expect("a time in range");
        }
        pipe.flush()
    }
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("History").field("series", &self.series.len()).finish_non_exhaustive()
    }
}
