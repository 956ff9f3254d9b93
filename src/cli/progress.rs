//! The progress bar on standard error, only for terminals that can move the cursor.

use std::io::{self, Write as _};

use crate::report::{demo::Scenario, style::Glyphs};

/// The minimum and maximum length of the bar.
const CELLS: std::ops::RangeInclusive<usize> = 6..=30;

/// A progress bar that is redrawn in place and cleared at the end.
#[derive(Debug)]
pub struct Progress {
    enabled: bool,
    columns: usize,
    glyphs: Glyphs,
    last: String,
}

impl Progress {
    /// Creates a bar for a terminal width; draws nothing unless `wanted`.
    pub fn new(wanted: bool, columns: usize, glyphs: Glyphs) -> Self {
        Self { enabled: wanted, columns, glyphs, last: String::new() }
    }

    pub fn show(&mut self, scenario: Scenario, hour: u32, of: u32) {
        self.draw(self.line(scenario, hour, of));
    }

    pub fn show_text(&mut self, text: &str) {
        let space = self.columns.saturating_sub(1);
        self.draw(format!("  {text} ...").chars().take(space).collect());
    }

    pub fn show_share(&mut self, label: &str, done: usize, of: usize) {
        self.draw(self.bar_line(label, &format!("{done} of {of}"), done as u64, of as u64));
    }

    fn draw(&mut self, line: String) {
        if self.enabled && line != self.last {
            // Ignore errors: progress is optional.
            let _ = write!(io::stderr(), "\r{line}\x1b[K");
            self.last = line;
        }
    }

    fn line(&self, scenario: Scenario, hour: u32, of: u32) -> String {
        let label = match scenario {
            Scenario::Without => "run 1 of 2, without",
            Scenario::With => "run 2 of 2, with   ",
        };
        let day = format!("day {:>2} of {}", hour.div_ceil(24), of.div_ceil(24));
        self.bar_line(label, &day, hour.into(), of.into())
    }

    /// Formats a line that is shorter than the terminal, because a full line would scroll. If there is not enough space,
    /// drops the bar, then truncates the text.
    fn bar_line(&self, label: &str, end: &str, done: u64, of: u64) -> String {
        let space = self.columns.saturating_sub(1);
        let cells = space.saturating_sub(label.len() + end.len() + 6).min(*CELLS.end());
        if !CELLS.contains(&cells) {
            return format!("  {label}  {end}").chars().take(space).collect();
        }
        let full = (done.saturating_mul(cells as u64) / of.max(1)) as usize;
        let full = full.min(cells);
        let (done, left) = if self.glyphs == Glyphs::Unicode { ("█", "░") } else { ("#", ".") };
        let bar = done.repeat(full) + &left.repeat(cells - full);
        format!("  {label}  {bar}  {end}")
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if !self.last.is_empty() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_bar_fits_80_columns_and_is_full_at_the_end() {
        let progress = Progress::new(true, 80, Glyphs::Ascii);
        let half = progress.line(Scenario::Without, 96, 192);
        assert_eq!(half, "  run 1 of 2, without  ###############...............  day  4 of 8");
        let end = progress.line(Scenario::With, 1440, 1440);
        assert!(end.contains(&"#".repeat(30)) && end.chars().count() < 80, "{end}");
    }

    #[test]
    fn a_share_is_shown_as_a_bar_and_in_numbers() {
        let progress = Progress::new(true, 60, Glyphs::Ascii);
        let line = progress.bar_line("reading history", "5 of 20", 5, 20);
        assert_eq!(line, "  reading history  #######.......................  5 of 20");
        assert!(progress.bar_line("reading history", "0 of 0", 0, 0).contains("......"));
    }

    #[test]
    fn a_narrow_terminal_gets_a_shorter_bar_or_none() {
        let line =
            |columns| Progress::new(true, columns, Glyphs::Ascii).line(Scenario::With, 2160, 2160);
        for columns in 0..100 {
            assert!(line(columns).len() < columns.max(1), "{columns}: {}", line(columns));
        }
        assert_eq!(line(50), "  run 2 of 2, with     ############  day 90 of 90");
        assert_eq!(line(40), "  run 2 of 2, with     day 90 of 90");
        assert_eq!(line(10), "  run 2 o");
    }
}
