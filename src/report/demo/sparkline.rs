//! Sparklines: numbers as a row of characters, in blocks or in plain ASCII.

pub use crate::report::style::Glyphs;

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const LETTERS: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// How the values of one character are aggregated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellAggregation {
    /// The mean of the values.
    Mean,
    /// The maximum of the values.
    Max,
}

impl CellAggregation {
    fn aggregate(self, cell: &[Option<i64>]) -> Option<i64> {
        let values = || cell.iter().flatten();
        match self {
            Self::Max => values().max().copied(),
            Self::Mean => {
                let sum: i128 = values().map(|value| i128::from(*value)).sum();
                let mean =
                    sum / i128::try_from(values().count()).ok().filter(|count| *count > 0)?;
                i64::try_from(mean).ok()
            }
        }
    }
}

/// A row of characters, one for every `per_cell` values. A value of `full` is a full block; missing values are blank.
pub fn sparkline(
    values: &[Option<i64>],
    full: i64,
    per_cell: usize,
    shared: CellAggregation,
    glyphs: Glyphs,
) -> String {
    let letters = match glyphs {
        Glyphs::Unicode => &BLOCKS,
        Glyphs::Ascii => &LETTERS,
    };
    values
        .chunks(per_cell.max(1))
        .map(|cell| match shared.aggregate(cell) {
            None => ' ',
            Some(value) => {
                // The lowest block starts at zero, the highest at seven eighths of `full`.
                let share = value.saturating_mul(8).div_euclid(full.max(1)).clamp(0, 7);
                letters[share as usize]
            }
        })
        .collect()
}

/// A row of marks for the cells with a non-zero count.
pub fn event_marks(counts: &[i64], per_cell: usize, glyphs: Glyphs) -> String {
    let mark = if glyphs == Glyphs::Unicode { '×' } else { 'x' };
    let cells = counts.chunks(per_cell.max(1));
    cells.map(|cell| if cell.iter().any(|count| *count > 0) { mark } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use super::{CellAggregation::*, *};

    #[test]
    fn heights_are_shares_of_the_maximum() {
        let values: Vec<_> = (0..=8).map(|eighth| Some(eighth * 100)).collect();
        assert_eq!(sparkline(&values, 800, 1, Max, Glyphs::Unicode), "▁▂▃▄▅▆▇██");
        assert_eq!(sparkline(&values, 800, 1, Max, Glyphs::Ascii), "_.:-=+*##");
    }

    #[test]
    fn a_gap_is_blank_and_a_cell_shows_its_maximum_or_mean() {
        let values = [Some(0), Some(800), None, None, None, Some(300), Some(1)];
        assert_eq!(sparkline(&values, 800, 2, Max, Glyphs::Ascii), "# -_");
        assert_eq!(sparkline(&values, 800, 2, Mean, Glyphs::Ascii), "= -_");
        assert_eq!(event_marks(&[0, 1, 0, 0, 0, 9], 2, Glyphs::Ascii), "x x");
    }

    #[test]
    fn zero_and_huge_scales_do_not_fail() {
        assert_eq!(sparkline(&[], 10, 4, Mean, Glyphs::Ascii), "");
        assert_eq!(sparkline(&[Some(5)], 0, 0, Mean, Glyphs::Ascii), "#");
        assert_eq!(sparkline(&[Some(i64::MAX), Some(-5)], 7, 1, Mean, Glyphs::Ascii), "#_");
    }
}
