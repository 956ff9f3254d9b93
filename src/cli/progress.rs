//! The progress bar on standard error. Only a terminal that can move its cursor gets one.

use std::io::{self, Write as _};

use crate::report::demo::{Scenario, sparkline::Glyphs};

/// As long as a bar gets, and as short as it makes sense.
const CELLS: std::ops::RangeInclusive<usize> = 6..=30;

/// A bar that overwrites itself and leaves nothing behind.
#[derive(Debug)]
pub struct Progress {
    enabled: bool,
    columns: usize,
    glyphs: Glyphs,
    last: String,
}

impl Progress {
    /// A bar within so many columns, or none.
    pub fn new(wanted: bool, columns: usize, glyphs: Glyphs) -> Self {
        Self { enabled: wanted, columns, glyphs, last: String::new() }
    }

    /// Shows how far a life is.
    pub fn show(&mut self, life: Scenario, hour: u32, of: u32) {
        if !self.enabled {
            return;
        }
        let drawn = self.line(life, hour, of);
        if drawn != self.last {
            // A bar that cannot be drawn is no reason to stop.
            let _ = write!(io::stderr(), "\r{drawn}\x1b[K");
            self.last = drawn;
        }
    }

    /// One line that is shorter than the terminal is wide: a full one would scroll. What is too much goes,
    /// first the bar, then the end of the words.
    fn line(&self, life: Scenario, hour: u32, of: u32) -> String {
        let what = match life {
            Scenario::Without => "life 1 of 2, without",
            Scenario::With => "life 2 of 2, with   ",
        };
        let day = format!("day {:>2} of {}", hour.div_ceil(24), of.div_ceil(24));
        let room = self.columns.saturating_sub(1);
        let cells = room.saturating_sub(what.len() + day.len() + 6).min(*CELLS.end());
        if !CELLS.contains(&cells) {
            return format!("  {what}  {day}").chars().take(room).collect();
        }
        let done = (hour as usize * cells / of.max(1) as usize).min(cells);
        let (full, empty) =
            if self.glyphs == Glyphs::Unicode { ("█", "░") } else { ("#", ".") };
        let bar = full.repeat(done) + &empty.repeat(cells - done);
        format!("  {what}  {bar}  {day}")
    }

    /// Takes the bar away.
    pub fn clear(&mut self) {
        if !self.last.is_empty() {
            let _ = write!(io::stderr(), "\r\x1b[K");
            self.last.clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fits_eighty_columns_and_fills_to_the_end() {
        let progress = Progress::new(true, 80, Glyphs::Ascii);
        let half = progress.line(Scenario::Without, 96, 192);
        assert_eq!(half, "  life 1 of 2, without  ###############...............  day  4 of 8");
        let end = progress.line(Scenario::With, 1440, 1440);
        assert!(end.contains(&"#".repeat(30)) && end.chars().count() < 80, "{end}");
    }

    #[test]
    fn a_narrow_terminal_gets_a_shorter_bar_or_none_and_never_a_full_line() {
        let line =
            |columns| Progress::new(true, columns, Glyphs::Ascii).line(Scenario::With, 2160, 2160);
        for columns in 0..100 {
            assert!(line(columns).len() < columns.max(1), "{columns}: {}", line(columns));
        }
        assert_eq!(line(50), "  life 2 of 2, with     ###########  day 90 of 90");
        assert_eq!(line(40), "  life 2 of 2, with     day 90 of 90");
        assert_eq!(line(10), "  life 2 ");
    }
}
