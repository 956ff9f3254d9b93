//! The progress bar on standard error. Only a terminal that can move its cursor gets one.

use std::io::{self, Write as _};

use crate::demo::{Life, spark::Glyphs};

const CELLS: u32 = 30;

/// A bar that overwrites itself and leaves nothing behind.
#[derive(Debug)]
pub struct Progress {
    wanted: bool,
    glyphs: Glyphs,
    last: String,
}

impl Progress {
    /// A bar, or none.
    pub fn new(wanted: bool, glyphs: Glyphs) -> Self {
        Self { wanted, glyphs, last: String::new() }
    }

    /// Shows how far a life is.
    pub fn show(&mut self, life: Life, hour: u32, of: u32) {
        if !self.wanted {
            return;
        }
        let drawn = self.line(life, hour, of);
        if drawn != self.last {
            // A bar that cannot be drawn is no reason to stop.
            let _ = write!(io::stderr(), "\r{drawn}");
            self.last = drawn;
        }
    }

    fn line(&self, life: Life, hour: u32, of: u32) -> String {
        let done = (hour * CELLS / of.max(1)).min(CELLS) as usize;
        let (full, empty) =
            if self.glyphs == Glyphs::Unicode { ("█", "░") } else { ("#", ".") };
        let bar = full.repeat(done) + &empty.repeat(CELLS as usize - done);
        let what = match life {
            Life::Without => "life 1 of 2, without",
            Life::With => "life 2 of 2, with   ",
        };
        format!("  {what}  {bar}  day {:>2} of {}", hour.div_ceil(24), of.div_ceil(24))
    }

    /// Takes the bar away.
    pub fn clear(&mut self) {
        if !self.last.is_empty() {
            let blank = " ".repeat(self.last.chars().count());
            let _ = write!(io::stderr(), "\r{blank}\r");
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
        let progress = Progress::new(true, Glyphs::Ascii);
        let half = progress.line(Life::Without, 96, 192);
        assert_eq!(half, "  life 1 of 2, without  ###############...............  day  4 of 8");
        let end = progress.line(Life::With, 1440, 1440);
        assert!(end.contains(&"#".repeat(30)) && end.chars().count() < 80, "{end}");
    }
}
